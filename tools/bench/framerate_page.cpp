// The page of `millrace bench framerate`.
#include <algorithm>
#include <map>

#include "engine/format.h"
#include "tools/bench/bench.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::format;

/// How many times PyTorch's best each network was to be.
double goal_of(const std::string& network, std::int64_t size) {
  static const std::map<std::pair<std::string, std::int64_t>, double> goals = {
      {{"basic", 16}, 10}, {{"basic", 32}, 5},      {{"basic", 64}, 2.4}, {{"basic", 128}, 1.7},
      {{"layers", 32}, 5}, {{"features", 32}, 2.4}, {{"kernel", 32}, 10}, {{"resnet18", 64}, 1.5}};
  const auto found = goals.find({network, size});
  return found == goals.end() ? 0 : found->second;
}

std::string named(const Json& row) {
  return row["network"].get<std::string>() + ", " + std::to_string(row["size"].get<int>());
}

std::string ms(double value) {
  return format(value < 10 ? "%.3f" : "%.1f", value);
}

/// The arm with so many stages and threads, where it was run; null else.
Json arm_of(const Json& results, const Json& row, int stages, int threads,
            const std::string& capture) {
  for (const Json& arm : results["arms"]) {
    if (arm["network"] == row["network"] && arm["size"] == row["size"] && arm["stages"] == stages &&
        arm["threads"] == threads && arm["capture"] == capture)
      return arm;
  }
  return {};
}

std::string step_of(const Json& arm) {
  return arm.is_null() ? "" : ms(arm["step_ms"]);
}

std::string verdict(double over, double most, double goal) {
  if (goal == 0) return "";
  if (over >= goal) return "reached";
  return most < goal ? "beyond the limit" : "missed";
}

std::string against_pytorch(const Json& results) {
  std::string text =
      "| network, px | ours, ms | PyTorch's best, ms | over PyTorch | goal | at the limit it would "
      "be | | over the limit | one stage over one core's limit |\n"
      "|---|---|---|---|---|---|---|---|---|\n";
  for (const Json& row : results["pytorch"]) {
    if (row["capture"] == "eager") continue;
    const double goal = goal_of(row["network"], row["size"]), over = row["over_pytorch"],
                 most = row["pytorch_ms"].get<double>() / row["limit_ms"].get<double>();
    text += "| " + named(row) + " | " + ms(row["step_ms"]) + " | " + ms(row["pytorch_ms"]) + " (" +
            row["pytorch_best"].get<std::string>() + ") | " + format("%.1f", over) + " | " +
            (goal > 0 ? format("%.3g", goal) : "") + " | " + format("%.1f", most) + " | " +
            verdict(over, most, goal) + " | " + format("%.2f", row["over_limit"].get<double>()) +
            " | " + format("%.2f", row["one_stage_over_limit"].get<double>()) + " |\n";
  }
  return text;
}

std::string stages_and_threads(const Json& results, int most) {
  const std::string n = std::to_string(most);
  std::string text = "| network, px | 1 stage | " + n + " stages, a thread each | hand-off, % | " +
                     "1 stage of " + n + " threads | " + n + " stages, operator by operator |\n" +
                     "|---|---|---|---|---|---|\n";
  for (const Json& one : results["arms"]) {
    if (one["stages"] != 1 || one["threads"] != 1 || one["capture"] == "eager") continue;
    const std::string capture = one["capture"];
    const Json many = arm_of(results, one, most, 1, capture);
    text += "| " + named(one) + " | " + step_of(one) + " | " + step_of(many) + " | " +
            (many.is_null() ? "" : format("%.2f", many["handoff_percent"].get<double>())) + " | " +
            step_of(arm_of(results, one, 1, most, capture)) + " | " +
            step_of(arm_of(results, one, most, 1, "eager")) + " |\n";
  }
  return text;
}

}  // namespace

std::string framerate_page(const Json& results) {
  int most = 1;
  for (const Json& arm : results["arms"]) most = std::max(most, arm["stages"].get<int>());
  const Json& provenance = results["provenance"];
  std::string text =
      "# Frames a second\n\n"
      "Written by `millrace bench framerate`. " +
      provenance.value("cpu", "An unknown machine") + ", " + std::to_string(most) +
      " cores, LibTorch " + provenance.value("libtorch", "?") + "; " + results["rounds"].dump() +
      " rounds in turn, medians. `partime`, sgd, the bare rule. basic: " +
      "10 layers, 16 features, kernel 5; layers, features and kernel: that times three; resnet18 " +
      "with group norm. Milliseconds a step, and so a frame.\n\n";
  if (results.contains("pytorch")) {
    text += "## Against PyTorch and the cores' limit\n\n" + against_pytorch(results) +
            "\nPyTorch trains the same network in the same run: eager, channels_last and "
            "torch.compile, with one thread and more; its best counts. The limit is what the "
            "multiply-adds of a step take on all cores if their registers do nothing else (" +
            format("%.0f", results["peak_gflops_a_core"].get<double>()) +
            " GFLOP/s a core, measured by a loop of them in the same run). No program is below it, "
            "so that \"at the limit it would be\" is PyTorch's best over the limit: the most that "
            "anybody can be faster than PyTorch here. A goal above that was set on a machine where "
            "PyTorch is farther from the limit.\n\n";
  }
  text += "## Stages or threads\n\n" + stages_and_threads(results, most) +
          "\nAll cores at work each time. A stage of several threads learns from each frame before "
          "the next comes: no gradient is old. Stages hand over once a step, threads wait for each "
          "other after each operation.\n";
  return text;
}

}  // namespace millrace::bench
