#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "stages/torchscript.h"
#include "tools/app/assembly.h"
#include "tools/app/checkpoint_files.h"
#include "tools/app/outputs/outputs.h"
#include "tools/cli/commands/command.h"

namespace millrace::cli {
namespace {

struct ExportArguments {
  std::string weights, onnx, config;
  std::vector<std::string> settings;
};

/// The config of the run that wrote `weights`.
app::Config config_of(const ExportArguments& arguments, const stages::Metadata& about) {
  if (!arguments.config.empty()) return app::load_config(arguments.config, arguments.settings);
  const auto found = about.find("config");
  if (found == about.end()) {
    throw app::ConfigError(arguments.weights +
                           ": does not say what network it is of (no \"config\" in its metadata, "
                           "where a run writes it): name the run's config by --config");
  }
  return app::parse_config(found->second, arguments.weights + " (config)", arguments.settings);
}

stages::ImageShape sample_shape(const app::Config& config) {
  const stages::ImageShape shape = app::configured_shape(config);
  if (shape.width > 0 && shape.height > 0) return shape;
  throw config.error("source.width",
                     "must say how large frames are, as must source.height: --set source.width=128 "
                     "--set source.height=96");
}

/// A path where a program that replaces this one can read `bytes`: a file in its own memory.
std::string handed_on(const std::string& bytes) {
  const int file = memfd_create("net.pt", 0);
  if (file < 0 || write(file, bytes.data(), bytes.size()) != ssize_t(bytes.size()))
    throw std::runtime_error(std::string("can't store the network in memory: ") +
                             std::strerror(errno));
  return "/proc/self/fd/" + std::to_string(file);
}

int export_weights(const ExportArguments& arguments) {
  app::require_other_files({{"--onnx", arguments.onnx}}, {arguments.weights, arguments.config});
  stages::Metadata about;
  stages::StateDict state;
  try {
    state = app::read_checked(arguments.weights, &about);
  } catch (const stages::WeightsError& error) {
    throw app::ConfigError(arguments.weights + ": " + error.what());
  }
  const app::Config config = config_of(arguments, about);
  const stages::Forecast forecast = app::forecast_of(config);
  stages::ImageShape shape = sample_shape(config);
  std::string script;
  try {
    const auto network =
        stages::build_network(app::model_of(config), shape, stages::Gives::anything, forecast);
    app::require_fit(state, *network);
    script = stages::to_torchscript(*network, state);
  } catch (const std::invalid_argument& error) {
    throw app::ConfigError(arguments.weights + ": " + error.what());
  }
  shape.channels *= forecast.context;
  run_python("--onnx", "onnx",
             {handed_on(script), arguments.onnx, std::to_string(shape.channels),
              std::to_string(shape.height), std::to_string(shape.width)});
}

void add_options(CLI::App& options, ExportArguments& arguments) {
  options.add_option("weights", arguments.weights, "Weights that a run wrote, .safetensors")
      ->required();
  options.add_option("--onnx", arguments.onnx, "The ONNX model to write")->required();
  options.add_option("--config", arguments.config, "The run's config; unset: as the weights say");
  add_set(options, arguments.settings);
}

}  // namespace

const Command kExport = {95, "export", "Write learned weights as an ONNX model",
                         add<ExportArguments, add_options, export_weights>};

}  // namespace millrace::cli
