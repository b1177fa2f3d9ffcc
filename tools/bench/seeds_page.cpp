// The page of `millrace bench seeds`, and its pictures.
#include <algorithm>
#include <filesystem>

#include "engine/format.h"
#include "io/plot/plot.h"
#include "tools/bench/bench.h"
#include "tools/bench/published.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::format;

std::string text_of(const Json& row, const char* key) {
  return row[key].get<std::string>();
}

/// Two numbers of microbatches show the way; more would leave no room for names.
bool is_drawn(const Json& arm) {
  const int m = arm["microbatches"];
  return m <= 1 || m == 4 || m == 16;
}

std::string category(const Json& arm) {
  const int m = arm["microbatches"];
  return text_of(arm, "schedule") + (m > 1 ? " m=" + std::to_string(m) : "");
}

/// A group a stage, a bar a schedule.
void plot_memory(const Json& memory, const std::string& path) {
  io::BarChart chart{.title = "Memory a stage holds at 4 stages",
                     .y_label = "KiB",
                     .categories = {},
                     .groups = {}};
  for (const Json& arm : memory["arms"]) chart.categories.push_back(arm["arm"]);
  for (std::size_t stage = 0; stage < 4; ++stage) {
    std::vector<double> values;
    for (const Json& arm : memory["arms"])
      values.push_back(arm["stages"][stage]["total"].get<double>() / 1024);
    chart.groups.emplace_back("stage " + std::to_string(stage), std::move(values));
  }
  io::write_bars(chart, path);
}

void plot_bubbles(const Json& results, const std::string& path) {
  io::BarChart chart{
      .title = "Share of time that a worker waits, " + results["workers"].dump() + " workers",
      .y_label = "%",
      .categories = {},
      .groups = {}};
  std::vector<double> formula, equal, measured;
  for (const Json& arm : results["arms"]) {
    if (!arm.contains("bubble") || !is_drawn(arm)) continue;
    chart.categories.push_back(category(arm));
    formula.push_back(100 * arm["bubble"]["formula"].get<double>());
    equal.push_back(100 * arm["bubble"]["equal_stages"].get<double>());
    measured.push_back(100 * arm["bubble"]["measured"].get<double>());
  }
  chart.groups = {{"formula", formula}, {"simulated, equal stages", equal}, {"measured", measured}};
  io::write_bars(chart, path);
}

void plot_rates(const Json& results, const std::string& path) {
  io::BarChart chart{.title = "Frames learned a second, " + results["workers"].dump() + " workers",
                     .y_label = "frames a second",
                     .categories = {},
                     .groups = {}};
  std::vector<double> measured, predicted;
  for (const Json& arm : results["arms"]) {
    if (!is_drawn(arm)) continue;
    chart.categories.push_back(category(arm));
    measured.push_back(1e3 / arm["measured_ms"].get<double>());
    predicted.push_back(1e3 / arm["predicted_ms"].get<double>());
  }
  chart.groups = {{"measured", measured}, {"predicted", predicted}};
  io::write_bars(chart, path);
}

/// A line a schedule, a point a number of microbatches.
void plot_rate_over_memory(const Json& results, const std::string& path) {
  io::Chart chart{.title = "Time a sample over memory, " + results["workers"].dump() + " workers",
                  .x_label = "KiB of the largest stage",
                  .y_label = "ms",
                  .series = {}};
  for (const Json& arm : results["arms"]) {
    const std::string schedule = text_of(arm, "schedule");
    if (schedule == "sequential" || schedule == "pb") continue;  // a color for each of the others
    if (chart.series.empty() || chart.series.back().label != schedule)
      chart.series.push_back({.label = schedule, .points = {}});
    chart.series.back().points.emplace_back(arm["memory_bytes"].get<double>() / 1024,
                                            arm["measured_ms"].get<double>());
  }
  for (io::Series& series : chart.series) std::sort(series.points.begin(), series.points.end());
  io::write_chart(chart, path);
}

}  // namespace

void plot_seeds(const Json& results, const std::string& path) {
  const auto beside = [&](const char* what) {
    std::filesystem::path file(path);
    return file.replace_filename(file.stem().string() + what + file.extension().string()).string();
  };
  plot_bubbles(results, path);
  plot_rates(results, beside("-rates"));
  plot_memory(results["memory"], beside("-memory"));
  plot_rate_over_memory(results, beside("-equal"));
}

std::string seeds_page(const Json& results) {
  const Json& where = results["provenance"];
  std::string text =
      "# The other pipelines' claims\n\n"
      "    millrace bench seeds --json seeds.json --plot seeds.png --page seeds.md\n\n";
  text += format(
      "The basic network at %d x %d on %d workers, steps as the run takes them. Measured: the "
      "pipeline's median over "
      "whole minibatches, %d rounds. Predicted: each stage's step by itself, played by the "
      "simulator. Other programs "
      "took %.2f cores meanwhile. Memory: counted at the allocator, 4 stages, 8 samples a "
      "minibatch.\n\n",
      results["size"].get<int>(), results["size"].get<int>(), results["workers"].get<int>(),
      results["rounds"].get<int>(), results["others_cores"].get<double>());
  text += "| | claim | published | predicted | measured |\n|---|---|---|---|---|\n";
  for (const Json& claim : results["claims"]) {
    text += "| " + text_of(claim, "seed") + " | " + text_of(claim, "claim") + " | " +
            text_of(claim, "published") + " | " + text_of(claim, "predicted") + " | " +
            text_of(claim, "measured") + " |\n";
  }
  text +=
      "\n## Bubbles\n\n![Share of time that a worker waits](seeds.png)\n\n"
      "GPipe and 1F1B wait (p-1)/(m+p-1) of the time, interleaved with v chunks (p-1)/(v m+p-1). "
      "Measured is what is left "
      "of the workers' time beside the stages' own steps, each measured by itself: also the "
      "stages' imbalance and the "
      "hand-off.\n\n"
      "| schedule | formula | simulated, equal stages | measured |\n|---|---|---|---|\n";
  for (const Json& arm : results["arms"]) {
    if (!arm.contains("bubble")) continue;
    const Json& bubble = arm["bubble"];
    text += "| " + text_of(arm, "arm") +
            format(" | %.3f | %.3f | %.3f |\n", bubble["formula"].get<double>(),
                   bubble["equal_stages"].get<double>(), bubble["measured"].get<double>());
  }
  text +=
      "\n## Rates\n\n![Frames learned a second](seeds-rates.png)\n\n"
      "| schedule | measured ms | predicted ms | KiB of the largest stage |\n|---|---|---|---|\n";
  for (const Json& arm : results["arms"]) {
    text += "| " + text_of(arm, "arm") +
            format(" | %.3f | %.3f | %.0f |\n", arm["measured_ms"].get<double>(),
                   arm["predicted_ms"].get<double>(), arm["memory_bytes"].get<double>() / 1024);
  }
  text += "\n![Time a sample over memory](seeds-equal.png)\n";
  text +=
      "\n## Memory\n\n![Memory a stage holds](seeds-memory.png)\n\n"
      "KiB of stage 0 of 4. Formula: the samples that the paper has the stage keep, times one "
      "sample's activations.\n\n"
      "| schedule | samples kept | weight versions | activations | formula | stashed weights | in "
      "all |\n|---|---|---|---|---|---|---|\n";
  for (const Json& arm : results["memory"]["arms"]) {
    const Json& stage = arm["stages"][0];
    const auto kib = [&](const char* name) { return stage[name].get<double>() / 1024; };
    text += "| " + text_of(arm, "arm") + " | " + text_of(arm["paper"], "samples") +
            format(" = %d | ", stage["samples"].get<int>()) + text_of(arm["paper"], "versions") +
            format(" = %d | %.0f | %.0f | %.0f | %.0f |\n", stage["versions"].get<int>(),
                   kib("activations"), kib("formula"), kib("stashes"), kib("total"));
  }
  text += "\nThe planner's own figures at 2 to 8 equal stages:\n\n" +
          comparisons_markdown(schedule_table());
  return text + "\nMillrace " + text_of(where, "version") + ", LibTorch " +
         text_of(where, "libtorch") + ", " + text_of(where, "cpu") + ".\n";
}

}  // namespace millrace::bench
