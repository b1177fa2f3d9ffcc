// The page of `millrace bench partime`, and its pictures.
#include <filesystem>
#include <map>

#include "engine/format.h"
#include "io/plot/plot.h"
#include "tools/bench/bench.h"
#include "tools/bench/bench_arm.h"
#include "tools/bench/partime_answers.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::format;

const std::map<std::string, std::string>& network_titles() {
  static const std::map<std::string, std::string> titles = {
      {"basic", "basic: 10 layers, 16 features, kernel 5"},
      {"layers", "layers x3: 30 layers"},
      {"features", "features x3: 48 features"},
      {"kernel", "kernel x3: kernel 15"}};
  return titles;
}

std::string beside(const std::string& path, const std::string& what) {
  std::filesystem::path file(path);
  return file.replace_filename(file.stem().string() + "-" + what + file.extension().string());
}

std::string cell(const std::optional<double>& value, const char* pattern) {
  return value ? format(pattern, *value) : "";
}

/// K over size, a line for each number of stages: dashed where it is predicted.
void plot_network(const Json& results, const std::string& network, const std::string& path) {
  io::Chart chart{.title = "Speed-up K, " + network_titles().at(network) + ", recorded steps",
                  .x_label = "pixels a side",
                  .y_label = "K",
                  .series = {}};
  for (const std::int64_t stages : partime_values(results, "stages")) {
    for (const char* kind : {"measured", "predicted"}) {
      io::Series line{.label = "N = " + std::to_string(stages) + ", " + kind,
                      .points = {},
                      .dashed = kind == std::string("predicted")};
      for (const std::int64_t size : partime_values(results, "size")) {
        if (const auto K = partime_figure(results, network, size, int(stages), "graph", kind, "K"))
          line.points.emplace_back(double(size), *K);
      }
      if (stages > 1 && !line.points.empty()) chart.series.push_back(std::move(line));
    }
  }
  if (!chart.series.empty()) io::write_chart(chart, path);
}

/// A bar a frame rate for each network and number of stages.
void plot_cameras(const Json& results, const std::string& path) {
  io::BarChart chart{
      .title = "The largest square picture that is learned from in real time, by frame rate",
      .y_label = "pixels a side",
      .categories = {},
      .groups = {}};
  std::map<int, std::vector<double>> groups;
  for (const Json& camera : results["cameras"]) {
    const int fps = camera["fps"];
    if (fps == results["cameras"].front()["fps"]) {
      chart.categories.push_back(camera["network"].get<std::string>() + " x" +
                                 camera["stages"].dump() +
                                 (camera["kind"] == "predicted" ? " pred." : ""));
    }
    groups[fps].push_back(camera["size"]);
  }
  for (auto& [fps, values] : groups)
    chart.groups.emplace_back(format("%d fps", fps), std::move(values));
  io::write_bars(chart, path);
}

std::string statements_table(const Json& results) {
  std::string text = "| statement | here | figure |\n|---|---|---|\n";
  for (const Json& row : results["statements"]) {
    text += "| " + row["statement"].get<std::string>() + " | **" +
            row["answer"].get<std::string>() + "** | " + row["figure"].get<std::string>() + " |\n";
  }
  return text + "\n";
}

std::string cameras_table(const Json& results) {
  std::string text =
      "| network | stages | | 10 fps | 25 fps | 30 fps | 60 fps |\n|---|---|---|---|---|---|---|\n";
  std::string row;
  for (const Json& camera : results["cameras"]) {
    const std::string head = "| " + camera["network"].get<std::string>() + " | " +
                             camera["stages"].dump() + " | " + camera["kind"].get<std::string>() +
                             " |";
    if (camera["fps"] == 10) text += head;
    const double size = camera["size"];
    text += size > 0 ? format(" %.0f |", size) : " less |";
    if (camera["fps"] == 60) text += "\n";
  }
  return text + "\n";
}

/// A row a number of stages, recorded and eager side by side.
std::string size_table(const Json& results, const std::string& network, std::int64_t size) {
  std::string text = format("%d px\n\n", int(size)) +
                     "| N | recorded: measured ms | predicted ms | K | K predicted | T ms | T/N | "
                     "eager: measured ms | predicted ms | K | K predicted |\n"
                     "|---|---|---|---|---|---|---|---|---|---|---|\n";
  for (const std::int64_t n : partime_values(results, "stages")) {
    const auto figure = [&](const char* capture, const char* kind, const char* name) {
      return partime_figure(results, network, size, int(n), capture, kind, name);
    };
    if (!figure("graph", "predicted", "K") && !figure("eager", "predicted", "K")) continue;
    text += format("| %d |", int(n));
    for (const char* capture : {"graph", "eager"}) {
      text += " " + cell(figure(capture, "measured", "step_ms"), "%.3f") + " | " +
              cell(figure(capture, "predicted", "step_ms"), "%.3f") + " | " +
              cell(figure(capture, "measured", "K"), "%.2f") + " | " +
              cell(figure(capture, "predicted", "K"), "%.2f") + " |";
      if (capture == std::string("eager")) continue;
      const auto T = figure(capture, "predicted", "T_ms");
      text += " " + cell(T, "%.3f") + " | " +
              cell(T ? std::optional(*T / double(n)) : std::nullopt, "%.3f") + " |";
    }
    text += "\n";
  }
  return text + "\n";
}

}  // namespace

void plot_partime(const Json& results, const std::string& path) {
  for (const std::string& network : bench_network_names())
    plot_network(results, network, beside(path, network));
  plot_cameras(results, path);
}

std::string partime_page(const Json& results) {
  const Json& where = results["provenance"];
  std::string text =
      "# PARTIME's experiments\n\n"
      "    millrace bench partime --json partime.json --plot partime.png --page partime.md\n\n"
      "The speed-up of a pipeline of N stages that learns from every frame, by picture size, on "
      "the "
      "four networks of the paper's experiments (Meloni et al., arXiv 2210.09147) with the "
      "schedule "
      "`partime`, sgd and the bare rule.\n\n";
  text += format(
      "**Measured**: the pipeline's own median step, for as many stages as there are "
      "cores, %d here. **Predicted**: each module's cost by itself, recorded (the best times of "
      "its operators) or eager (medians), added up to stages and played by the simulator on "
      "one core a stage. Both stand side by side where both exist. A prediction knows nothing of "
      "what more cores than "
      "these would share: memory, caches, clock. T: the stages' own times together; T/N "
      "is what a perfect balance would reach; K: the step of one stage over that of N. "
      "Other programs took %.2f cores meanwhile.\n\n",
      results["cores"].get<int>(), results["others_cores"].get<double>());
  text += "## What the slides say\n\n" + statements_table(results) +
          "## Which camera can this machine learn from?\n\n![Sizes by frame rate](partime.png)\n\n"
          "The largest square picture whose step fits into 1/F, recorded steps, in pixels a side; "
          "between the sizes that were run it is interpolated, beyond the largest nothing is "
          "said.\n\n" +
          cameras_table(results);
  for (const std::string& network : bench_network_names()) {
    std::string tables;
    for (const std::int64_t size : partime_values(results, "size")) {
      const Json& arms = results["arms"];
      const bool here = std::any_of(arms.begin(), arms.end(), [&](const Json& arm) {
        return arm["network"] == network && arm["size"] == size;
      });
      if (here) tables += size_table(results, network, size);
    }
    if (tables.empty()) continue;
    text += "## " + network_titles().at(network) + "\n\n![K over resolution](partime-" + network +
            ".png)\n\n" + tables;
  }
  return text + "Millrace " + where["version"].get<std::string>() + ", LibTorch " +
         where["libtorch"].get<std::string>() + ", " + where["cpu"].get<std::string>() + ".\n";
}

}  // namespace millrace::bench
