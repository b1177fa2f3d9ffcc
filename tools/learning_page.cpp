// The page of `millrace bench learning`.
#include <cstdio>  // figures

#include "tools/bench.h"

namespace millrace::tools {
namespace {

using Json = nlohmann::ordered_json;

/// JSON has no nan: null is a loss that was none.
std::string figure(const Json& value) {
  if (!value.is_number()) return "nan";
  char text[32];
  std::snprintf(text, sizeof text, "%.4f", value.get<double>());
  return text;
}

/// "0.0021 (0.0019 to 0.0024)": over the seeds.
std::string over_seeds(const Json& value) {
  return figure(value["mean"]) + " (" + figure(value["min"]) + " to " + figure(value["max"]) + ")";
}

std::string table_of(const Json& results, const Json& stream) {
  const std::string name = stream["stream"];
  const bool scenes = name == "scenes", labels = name == "labels";
  std::string text =
      "## " + name + "\n\n`" + stream["uri"].get<std::string>() +
      "`; always the mean of the targets so far: " + figure(stream["mean_frame"]["loss"]) +
      " over the run, " + figure(stream["mean_frame"]["last_100"]) +
      " over the last 100 frames.\n\n";
  text += "| schedule | N | optimizer | correction | frames | rate | loss | last 100 | held out |";
  text += scenes ? " return |" : labels ? " told |" : "";
  text += std::string("\n|---|---|---|---|---|---|---|---|---|") +
          (scenes || labels ? "---|" : "") + "\n";
  for (const Json& arm : results["arms"]) {
    if (arm["stream"] != name) continue;
    const int every = arm["every"];
    char rate[32];
    std::snprintf(rate, sizeof rate, "%g", arm["lr"].get<double>());
    text += "| " + arm["schedule"].get<std::string>() + " | " + arm["stages"].dump() + " | " +
            arm["optimizer"].get<std::string>() + " | " + arm["correction"].get<std::string>() +
            " | " + (every > 1 ? "every " + std::to_string(every) + "th" : std::string("all")) +
            " | " + rate + " | " + over_seeds(arm["loss"]) + " | " + over_seeds(arm["last_100"]) +
            " | " + figure(arm["held_out"]["mean"]) + " |";
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
      "The PARTIME experiments' basic network (10 layers, 16 features, kernel 5; for labels its "
      "first 8 "
      "and a linear layer) at " +
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
      "back over its loss when it left. Told: held-out frames whose class is told.\n\n";
  for (const Json& stream : results["streams"]) text += table_of(results, stream);
  const Json& where = results["provenance"];
  return text + "Millrace " + where["version"].get<std::string>() + ", LibTorch " +
         where["libtorch"].get<std::string>() + ", " + where["cpu"].get<std::string>() + ".\n";
}

}  // namespace millrace::tools
