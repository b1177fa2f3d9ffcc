// `millrace check`. Touches no device or source.
#include <algorithm>
#include <iostream>
#include <optional>

#include "capture/program/kernels/kernels.h"
#include "engine/format.h"
#include "engine/trainer/operations.h"
#include "engine/trainer/trainer.h"
#include "io/source/source.h"
#include "tools/app/assembly.h"
#include "tools/app/intake.h"
#include "tools/app/outputs/outputs.h"
#include "tools/app/ranks/rank_grid.h"
#include "tools/app/request.h"
#include "tools/cli/commands/command.h"

namespace millrace::cli {
namespace {

struct CheckArguments {
  std::string config;
  std::vector<std::string> settings;
  bool keys = false;  ///< print the reference of all keys instead
};

void describe_pipeline(const engine::TrainerOptions& options) {
  const engine::Schedule schedule = engine::schedule_of(options);
  const std::vector<std::int64_t> ages =
      engine::gradient_ages(schedule, options.correction.kind == "local");
  std::cout << "# would run: " << options.network->size() << " modules in " << options.stages
            << " stages, schedule " << options.schedule << "\n";
  for (int stage = 0; stage < options.stages; ++stage) {
    std::cout << "#   stage " << stage << " on ";
    for (int replica = 0; replica < schedule.replicas_of(stage); ++replica) {
      std::cout << (replica > 0 ? " and " : "")
                << options.devices[schedule.replica_id(stage, replica)].name();
    }
    if (const int threads = options.threads.at(std::size_t(stage)); threads > 1)
      std::cout << " with " << threads << " threads";
    std::cout << ", gradients " << ages[stage] << " frames old";
    if (options.cut.empty() && options.stages > 1) {
      std::cout << "\n";
      continue;
    }
    const stages::StageRange range = engine::range_of(options, stage);
    std::cout << ": modules " << range.begin << " to " << range.end - 1 << "\n";
  }
  if (options.cut.empty() && options.stages > 1)
    std::cout << "#   cut by module times measured at the start, least slowest stage\n";
  if (options.threads == std::vector<int>(options.threads.size(), 0))
    std::cout << "#   threads of each stage, and its core, chosen by module times measured at the "
                 "start\n";
}

/// Prints the operators that step programs leave to LibTorch, per stage if the cut is known.
void describe_programs(const engine::TrainerOptions& options,
                       const std::vector<engine::PredictedStage>& stages) {
  const auto print = [](const std::string& who, const auto& operations) {
    const std::vector<std::string> left = engine::left_to_libtorch(operations);
    std::cout << "#   " << who << " to LibTorch's operators:";
    for (const std::string& operation : left) std::cout << " " << operation;
    std::cout << (left.empty() ? " none\n" : "\n");
  };
  if (stages.empty()) return;
  if (options.cut.empty()) return print("left", engine::operations_of(stages));
  for (std::size_t i = 0; i < stages.size(); ++i)
    print("stage " + std::to_string(i) + " leaves", stages[i].operations);
}

/// Prints the memory that stages on cores would use.
void describe_memory(const engine::TrainerOptions& options,
                     const std::vector<engine::PredictedStage>& stages) {
  if (stages.empty() || std::ranges::any_of(options.devices, &engine::Device::cuda)) return;
  const auto mib = [](std::int64_t bytes) {
    return engine::format("%.1f", double(bytes) / (1 << 20));
  };
  std::int64_t all = 0;
  for (const engine::PredictedStage& stage : stages) all += stage.memory.total();
  std::cout << "#   memory: " << mib(all) << " MiB beside the libraries"
            << (options.cut.empty() && stages.size() > 1 ? ", for stages of as many modules" : "")
            << "\n";
  for (std::size_t i = 0; i < stages.size(); ++i) {
    const engine::StageMemory& s = stages[i].memory;
    std::cout << "#     stage " << i << ": " << mib(s.total()) << ", activations "
              << mib(s.activations) << ", cuts " << mib(s.cuts) << ", scratch " << mib(s.scratch)
              << ", samples " << mib(s.samples)
              << ", weights with versions, gradients and optimizer "
              << mib(s.weights + s.stashes + s.gradients + s.optimizer) << "\n";
  }
}

void describe_capture(const engine::TrainerOptions& options,
                      const std::vector<engine::PredictedStage>& stages) {
  const bool cuda = std::ranges::any_of(options.devices, &engine::Device::cuda);
  const bool cores = !std::ranges::all_of(options.devices, &engine::Device::cuda);
  const std::string why = options.capture == engine::Capture::eager ? "pipeline.capture is eager"
                                                                    : engine::unrecordable(options);
  bool programs = false;
  for (int unit = 0; unit < int(options.devices.size()); ++unit)
    programs = programs || engine::runs_programs(options, unit);
  std::cout << "#   steps: ";
  if (!why.empty()) {
    std::cout << "eager, since " << why << "\n";
    return;
  }
  if (cuda) std::cout << "CUDA Graphs" << (cores ? "; on cores " : "\n");
  if (cores) {
    std::cout << (programs ? "step programs, " + kernels::instruction_set() + "\n"
                           : "eager, since this machine has no vectors\n");
  }
  if (programs) describe_programs(options, stages);
}

/// Prints the source. Throws ConfigError for a malformed URI.
void describe_source(const app::Config& config) {
  const auto check = [&](const char* key, const std::string& uri) {
    io::SourceOptions options = app::source_options(config);
    options.uri = uri;
    app::check_key<io::SourceError>(config, key, [&] { io::check_source(options); });
  };
  check("source.uri", config.source.uri);
  for (const std::string& uri : config.source.uris) check("source.uris", uri);
  if (!config.task.stream.empty()) check("task.stream", config.task.stream);
  std::cout << "# source " << io::redacted(config.source.uri)
            << (app::names_source(config) ? "\n" : ", the default, since none is set\n");
}

/// Prints how pictures of another shape are fitted; only the source knows their shape.
void describe_frames(const app::Config& config) {
  const auto& source = config.source;
  if (source.width == 0 || source.height == 0) return;
  std::cout << "#   pictures of another shape than " << source.width << "x" << source.height
            << (source.fit == "crop"  ? " lose their edges"
                : source.fit == "pad" ? " get black bars"
                                      : " are squashed; source.fit = \"crop\" or \"pad\" keeps it")
            << "\n";
}

void describe_policy(const app::Config& config, const engine::TrainerOptions& options) {
  const std::string& policy = config.monitor.policy;
  std::cout << "#   late: " << policy;
  if (policy == "skip") {
    const std::int64_t group = engine::schedule_of(options).samples_a_choice();
    std::cout << ", learns from every k-th "
              << (group == 1 ? "frame" : "update's " + std::to_string(group) + " frames");
  }
  std::cout << "\n";
}

/// Prints the class of each output. Frames that `told_by` leaves out have none; "": none may.
void describe_classes(const std::vector<std::string>& classes, const std::string& told_by) {
  std::cout << "#   classes:";
  for (std::size_t i = 0; i < classes.size(); ++i)
    std::cout << (i > 0 ? ", " : " ") << i << " " << classes[i];
  if (!told_by.empty())
    std::cout << "; frames that " << told_by << " leaves out are predicted, not learned from";
  std::cout << "\n";
}

int check(const CheckArguments& arguments) {
  if (arguments.keys) {
    std::cout << app::describe_keys() << app::describe_layers();
    return kDone;
  }
  const app::Config asked = app::load_argument(arguments.config, arguments.settings);
  app::Resumed resumed;
  const engine::TrainerOptions options =
      app::assemble(asked, app::configured_shape(asked), &resumed);
  const app::Config config = app::as_run(asked, options);
  const std::optional<io::Labels> labels = app::configured_labels(config);
  const std::vector<std::string> classes = app::class_names(config, labels);
  const bool masks = !config.task.masks.empty();
  if (!classes.empty() && !masks)
    app::require_classes(config, *options.network, int(classes.size()));
  app::require_outputs(config);
  app::require_sinks(config);
  app::require_grid(config, options, config.pipeline.tensor * app::copies_of(config));
  if (config.empty_file) std::cerr << config.name << " is empty, so every key has its default\n";
  describe_source(config);
  describe_pipeline(options);
  std::cout << "#   correction " << app::describe_correction(config, options) << "\n";
  const std::string local = app::local_note(options);
  if (!local.empty()) std::cout << "#   " << local << "\n";
  for (const std::string& line : options.network->remarks) std::cout << "#   " << line << "\n";
  if (!config.model.file.empty())
    std::cout << "#   " << config.model.file
              << " is TorchScript, which is code: load only what you trust\n";
  if (!resumed.path.empty())
    std::cout << "#   resuming from " << resumed.path << ", after " << resumed.frames
              << " frames\n";
  if (!resumed.note.empty()) std::cout << "#   checkpoint: " << resumed.note << "\n";
  std::cout << "#   guard " << config.guard.kind << "\n";
  std::optional<bool> live;
  if (config.source.pace != "auto") live = config.source.pace == "live";
  const std::string replay = app::describe_replay(config, options, live);
  if (replay != "none") std::cout << "#   replay " << replay << "\n";
  const bool sized = options.sample.width > 0 && options.sample.height > 0;
  const auto stages =
      sized ? engine::predict_stages(options) : std::vector<engine::PredictedStage>();
  describe_capture(options, stages);
  describe_memory(options, stages);
  describe_policy(config, options);
  describe_frames(config);
  if (!classes.empty()) {
    describe_classes(classes, masks                        ? "task.masks"
                              : config.task.labels.empty() ? ""
                                                           : "task.labels");
  }
  std::cout << "# every key:\n\n" << app::to_toml(config);
  return kDone;
}

void add_options(CLI::App& options, CheckArguments& arguments) {
  add_config(options, arguments.config, arguments.settings);
  options.add_flag("--keys", arguments.keys,
                   "Print every config key with its default, meaning and range");
}

}  // namespace

const Command kCheck = {20, "check", "Validate a config and say what would run",
                        add<CheckArguments, add_options, check>};

}  // namespace millrace::cli
