#include <iostream>
#include <map>

#include "capture/devices.h"
#include "engine/pipeline/pinning.h"
#include "engine/trainer/operations.h"
#include "engine/trainer/trainer.h"
#include "io/source/source.h"
#include "tools/app/assembly.h"
#include "tools/app/intake.h"
#include "tools/app/provenance.h"
#include "tools/cli/commands/command.h"

namespace millrace::cli {
namespace {

void print_machine() {
  const nlohmann::ordered_json p = app::provenance(engine::usable_cores());
  const auto or_none = [](const std::string& text) { return text.empty() ? "none" : text; };
  std::cout << "millrace   " << p.value("version", "") << " (" << p.value("compiler", "") << ")\n"
            << "libtorch   " << p.value("libtorch", "") << "\n"
            << "cuda       " << or_none(p.value("cuda", "")) << "\n"
            << "gstreamer  " << or_none(io::gstreamer_version()) << "\n"
            << "opencv     " << or_none(io::opencv_version()) << "\n"
            << "cpu        " << p.value("cpu", "") << "\n";
  for (const io::SourceKind& kind : io::source_kinds())
    std::cout << "source     " << kind.example << "  " << kind.summary << "\n";
  for (int i = 0; i < engine::usable_cores(); ++i) std::cout << "device     cpu:" << i << "\n";
  for (int i = 0; i < capture::cuda_devices(); ++i)
    std::cout << "device     cuda:" << i << "  " << capture::cuda_device_name(i) << "\n";
}

void print_source(const app::Config& config, const std::string& uri) {
  io::SourceOptions options = app::source_options(config);
  options.uri = uri;
  const io::SourceInfo info = io::open_source(options)->info();
  std::cout << "uri        " << io::redacted(uri) << "\n"
            << "read by    " << info.kind << "\n"
            << "caps       " << info.caps << "\n"
            << "size       " << info.width << "x" << info.height << "\n"
            << "rate       ";
  info.fps > 0 ? std::cout << info.fps << " frames a second\n" : std::cout << "unknown\n";
  std::cout << "duration   ";
  info.duration_s > 0 ? std::cout << info.duration_s << " s\n" : std::cout << "unknown\n";
  std::cout << "live       " << (info.live ? "yes" : "no") << "\n";
}

/// Prints, per stage, the kernels of a config's steps and the operators left to LibTorch.
void print_steps(const app::Config& config) {
  const engine::TrainerOptions options = app::assemble(config, app::sample_of(config));
  std::cout << "sample     " << options.sample.channels << "x" << options.sample.height << "x"
            << options.sample.width << "\n";
  if (!engine::runs_programs(options, 0)) {
    std::cout << "steps      no step programs\n";
    return;
  }
  const auto print = [](const std::string& who, const auto& operations) {
    std::map<std::string, int> counts;
    for (const capture::OperationInfo& operation : operations) ++counts[operation.kernel];
    std::cout << who;
    for (const auto& [kernel, count] : counts) std::cout << "  " << kernel << " x" << count;
    std::cout << "\n";
    for (const std::string& operation : engine::left_to_libtorch(operations))
      std::cout << "LibTorch   " << operation << "\n";
  };
  const std::vector<engine::PredictedStage> stages = engine::predict_stages(options);
  if (options.cut.empty() && stages.size() > 1)
    return print("steps     ", engine::operations_of(stages));
  for (std::size_t i = 0; i < stages.size(); ++i)
    print("stage " + std::to_string(i), stages[i].operations);
}

int inspect(const std::string& what) {
  if (what.empty()) {
    print_machine();
  } else if (what.ends_with(".toml")) {
    const app::Config config = app::load_config(what, {});
    if (config.source.uris.empty()) print_source(config, config.source.uri);
    for (const std::string& uri : config.source.uris) print_source(config, uri);
    print_steps(config);
  } else {
    print_source(app::load_config("", {}), what);
  }
  return kDone;
}

void add_options(CLI::App& options, std::string& what) {
  options.add_option("uri", what, "A source; or a config (.toml): its source and its steps");
}

}  // namespace

const Command kInspect = {30, "inspect",
                          "Devices and versions; with a URI or config: what the source is",
                          add<std::string, add_options, inspect>};

}  // namespace millrace::cli
