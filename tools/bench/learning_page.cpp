// The page of `millrace bench learning`.
#include <cstdio>  // figures

#include <optional>  // best arms

#include "engine/format.h"
#include "tools/bench/bench.h"
#include "tools/bench/learning_arm.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

/// Null: a mean that was no number, in results of earlier versions.
std::string figure(const Json& value) {
  if (!value.is_number()) return "-";
  return engine::format("%.4f", value.get<double>());
}

/// "0.0021 (0.0019 to 0.0024)": over the seeds.
std::string over_seeds(const Json& value) {
  return figure(value["mean"]) + " (" + figure(value["min"]) + " to " + figure(value["max"]) + ")";
}

/// The least mean loss of a stream's arms that `wanted` takes, and whose it is.
template <class Wanted>
std::optional<std::pair<double, std::string>> best_of(const Json& results,
                                                      const std::string& stream,
                                                      const Wanted& wanted) {
  std::optional<std::pair<double, std::string>> best;
  for (const Json& arm : results["arms"]) {
    const Json& loss = arm["loss"]["mean"];
    if (arm["stream"] != stream || !loss.is_number() || !wanted(arm)) continue;
    if (best && best->first <= loss.get<double>()) continue;
    best = {loss.get<double>(),
            arm["schedule"].get<std::string>() + ", " + arm["correction"].get<std::string>()};
  }
  return best;
}

/// What a pipeline may lose, or must win, against one stage: what was set out to be reached.
std::string goals_of(const Json& results, const std::string& stream) {
  struct Goal {
    int stages, every;  ///< of the pipeline; of the sequential learner
    double most;
  };
  std::string text =
      "| mean loss | norm | gradients | best pipeline | sequential, same network | ratio | goal | "
      "|\n|---|---|---|---|---|---|---|---|\n";
  for (const Goal& goal :
       {Goal{2, 1, 1.05}, {8, 1, stream == "labels" ? 1.1 : 1.25}, {8, 4, 0.7}}) {
    for (const char* norm : {"none", "instance", "instance, leaky ReLU 0.3"}) {
      const auto one = best_of(results, stream, [&](const Json& arm) {
        return arm["schedule"] == "sequential" && arm["every"] == goal.every &&
               arm.value("norm", "none") == norm;
      });
      for (const bool local : {false, true}) {
        const auto pipeline = best_of(results, stream, [&](const Json& arm) {
          return arm["stages"] == goal.stages && arm.value("norm", "none") == norm &&
                 (arm["correction"] == "local") == local;
        });
        if (!pipeline || !one) continue;
        const double ratio = pipeline->first / one->first;
        text += engine::format(
            "| N = %d, %s | %s | %s | %s: %.4f | %.4f | %.2f | <= %.2f | %s |\n", goal.stages,
            goal.every == 1 ? "equal samples" : "equal wall-clock, a stream 4 times too fast", norm,
            local ? "own heads'" : "from downstream", pipeline->second.c_str(), pipeline->first,
            one->first, ratio, goal.most, ratio <= goal.most ? "reached" : "**missed**");
      }
    }
  }
  return text + "\n";
}

std::string table_of(const Json& results, const Json& stream) {
  const std::string name = stream["stream"];
  const bool scenes = name == "scenes", labels = name == "labels";
  std::string text =
      "## " + name + "\n\n`" + stream["uri"].get<std::string>() +
      "`; always the mean of the targets so far: " + figure(stream["mean_frame"]["loss"]) +
      " over the run, " + figure(stream["mean_frame"]["last_100"]) +
      " over the last 100 frames.\n\n";
  text +=
      "| schedule | N | optimizer | correction | norm | frames | rate | loss | last 100 | held out "
      "|";
  text += scenes ? " return |" : labels ? " told |" : "";
  text += std::string("\n|---|---|---|---|---|---|---|---|---|---|") +
          (scenes || labels ? "---|" : "") + "\n";
  for (const Json& arm : results["arms"]) {
    if (arm["stream"] != name) continue;
    const int every = arm["every"];
    const std::string rate = engine::format("%g", arm["lr"].get<double>());
    text += "| " + arm["schedule"].get<std::string>() + " | " + arm["stages"].dump() + " | " +
            arm["optimizer"].get<std::string>() + " | " + arm["correction"].get<std::string>() +
            " | " + arm.value("norm", "none") + " | " + frames_text(every) + " | " + rate + " | " +
            over_seeds(arm["loss"]) + " | " + over_seeds(arm["last_100"]) + " | " +
            figure(arm["held_out"]["mean"]) + " |";
    char extra[32] = "";
    if (scenes && arm["forgetting"]["mean"].is_number())
      std::snprintf(extra, sizeof extra, " %.2f |", arm["forgetting"]["mean"].get<double>());
    if (labels && arm.contains("held_out_hits"))
      std::snprintf(extra, sizeof extra, " %.0f %% |",
                    100 * arm["held_out_hits"]["mean"].get<double>());
    text += std::string(extra) + "\n";
  }
  return text + "\n";
}

}  // namespace

std::string learning_page(const Json& results) {
  std::string text =
      "# Learning under delay\n\n"
      "    millrace bench learning --json learning.json --plot learning.png --page learning.md\n\n"
      "![Loss over the last 100 frames](learning.png)\n\n"
      "The PARTIME experiments' basic network (10 layers, 16 features, kernel 5; for labels "
      "eight of 16 features, kernel 3, with group normalisation, and a linear layer) at " +
      results["width"].dump() + "x" + results["height"].dump() + ", " + results["frames"].dump() +
      " frames. Losses are of predictions made before learning from the frame: means over " +
      results["seeds"].dump() +
      " seeds (least to most). Each arm's rate is the best of the same grid for its optimizer "
      "(adam "
      "0.0001 to 0.003, sgd 0.008 to 0.25), chosen by seed 0. `every 4th`: a live stream at 4 "
      "times "
      "what the learner can take, which drops the rest; the pipeline beside it is the one with N = "
      "4. "
      "Held out: the final weights on frames never learned from. Return: a scene's loss when it "
      "comes "
      "back over its loss when it left. Told: held-out frames whose class is told. Every arm runs "
      "with the loss guard; a prediction that is no number counts as a loss of 1, the most there "
      "is.";
  std::size_t unguarded = 0;
  for (const Json& arm : results["arms"]) unguarded += !arm.contains("roll_backs");
  if (unguarded > 0)
    text += " " + std::to_string(unguarded) + " arms are from an earlier version, without guard.";
  text += "\n\n";
  for (const Json& stream : results["streams"])
    text += table_of(results, stream) + goals_of(results, stream["stream"]);
  const Json& where = results["provenance"];
  return text + "Millrace " + where["version"].get<std::string>() + ", LibTorch " +
         where["libtorch"].get<std::string>() + ", " + where["cpu"].get<std::string>() + ".\n";
}

}  // namespace millrace::bench
