#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "engine/format.h"
#include "io/files/whole_file.h"
#include "tools/app/assembly.h"
#include "tools/app/checkpoint_files.h"
#include "tools/app/run.h"
#include "tools/cli/commands/command.h"
#include "tools/cli/commands/signals.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::ordered_json;

struct EvaluateArguments {
  std::string weights, source;
  std::vector<std::string> settings;
  std::int64_t frames = 0;  ///< 0: all
  std::string report;
};

/// The config stored in the weights, as far as it affects the computation, with SOURCE as its
/// stream. The cut is not stored: one stage computes everything. Throws ConfigError.
app::Config config_of(const EvaluateArguments& arguments) {
  stages::Metadata about;
  try {
    app::read_checked(arguments.weights, &about);
  } catch (const stages::WeightsError& error) {
    throw app::ConfigError(arguments.weights + ": " + error.what());
  }
  const app::Config made = app::parse_config(about["config"], arguments.weights, {});
  app::Config config = app::load_config("", {});
  config.name = arguments.weights;
  config.plugins = made.plugins;
  config.source = made.source;
  config.task = made.task;
  config.model = made.model;
  for (const auto& [key, place] : made.places)
    if (key.starts_with("model.") || key.starts_with("task.")) config.places[key] = place;
  config.pipeline.schedule = "sequential";
  config.pipeline.stages = 1;
  config.weights = {.file = arguments.weights, .seed = made.weights.seed, .learn = false};
  config.source.uri = arguments.source;
  config.source.uris.clear();
  config.source.pace = config.source.drop = "auto";
  config.source.loop = false;
  if (app::told_live(config)) config.task.labels.clear();  // nobody gives labels here
  for (const std::string& setting : arguments.settings) app::apply_setting(config, setting);
  if (!arguments.report.empty())
    app::apply_setting(config, app::text_setting("output.report", arguments.report));
  return app::settled(std::move(config));
}

struct Figure {
  std::string name, unit;
  bool more_is_better = false;
  double network = 0;
  std::string rival;
  double best = 0;  ///< of the best trivial predictor
};

/// `one` with the report's values under `key`; none if it lacks one.
std::optional<Figure> filled(Figure one, const Json& report, const std::string& key) {
  if (!report.contains(key) || !report[key]["mean"].is_number()) return std::nullopt;
  one.network = report[key]["mean"];
  for (const auto& [trivial, value] : report[key].items()) {
    if (!value.is_object() || !value.contains("mean") || !value["mean"].is_number()) continue;
    const double mean = value["mean"];
    if (!one.rival.empty() && (one.more_is_better ? mean <= one.best : mean >= one.best)) continue;
    one.rival = trivial;
    one.best = mean;
  }
  std::replace(one.rival.begin(), one.rival.end(), '_', ' ');
  return one.rival.empty() ? std::nullopt : std::optional(one);
}

std::string line(const Figure& one) {
  return engine::format("%-9s %.4g%s, %s %.4g%s\n", one.name.c_str(), one.network, one.unit.c_str(),
                        one.rival.c_str(), one.best, one.unit.c_str());
}

/// Compares errors: losses, or shares misclassified.
std::string verdict_on(const Figure& one) {
  const double mine = one.more_is_better ? 1 - one.network : one.network;
  const double rival = one.more_is_better ? 1 - one.best : one.best;
  if (mine == rival) return "not better: no better than";
  if (mine == 0) return "better: no error, unlike";
  if (rival == 0) return "not better: errors, unlike";
  return (mine < rival ? "better: " : "not better: ") + engine::times_better(rival / mine);
}

int evaluate(const EvaluateArguments& arguments) {
  catch_signals();
  app::Run run(config_of(arguments));
  run.on_tick([&] {
    if (asked_to_stop()) run.stop();
  });
  run.learn(arguments.frames);
  const std::string text = run.report();
  if (!arguments.report.empty()) io::write_whole(arguments.report, text + "\n");
  if (!run.source_error().empty()) throw std::runtime_error(run.source_error());
  std::ostream& out = run.uses_stdout() ? std::cerr : std::cout;
  const Json report = Json::parse(text);
  const std::optional<Figure> loss = filled({"loss", ""}, report, "loss");
  if (report.contains("neither"))
    out << engine::format("neither   %.4g of the frames are unlike every class\n",
                          report["neither"].get<double>());
  if (!loss) throw std::runtime_error(arguments.source + ": no frame could be evaluated");
  out << "frames    " << report["frames"]["trained"] << ", without training\n" << line(*loss);
  const auto accuracy = filled({"accuracy", "", true}, report, "accuracy");
  for (const auto& one : {filled({"PSNR", " dB", true}, report, "psnr_db"), accuracy,
                          filled({"IoU", "", true}, report, "iou")})
    if (one) out << line(*one);
  const Figure& judged = accuracy ? *accuracy : *loss;
  out << "verdict   " << verdict_on(judged) << " the strongest trivial predictor, " << judged.rival
      << "\n";
  return kDone;
}

void add_options(CLI::App& options, EvaluateArguments& arguments) {
  options.add_option("weights", arguments.weights, "Weights or a checkpoint, .safetensors")
      ->required();
  options.add_option("source", arguments.source, "The stream to predict, as source.uri")
      ->required();
  add_set(options, arguments.settings);
  add_number(options, "--frames", arguments.frames, "Frames to predict; 0: until the source ends",
             std::int64_t{0}, kMostFrames);
  options.add_option("--report", arguments.report, "Where to write the report, JSON");
}

}  // namespace

const Command kEvaluate = {
    85, "evaluate", "Evaluate weights on a stream without training, against trivial predictors",
    add<EvaluateArguments, add_options, evaluate>};

}  // namespace millrace::cli
