// The page and the picture of `millrace bench ranks`.
#include "engine/format.h"
#include "io/plot/plot.h"
#include "tools/bench/bench.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::format;

struct Section {
  const char *kind, *title, *words, *other, *ratio;
};

constexpr Section kSections[] = {
    {"handoff", "Hand-off",
     "From a stage's sending to where the next has the tensors in hand, in a run of `sequential` "
     "over two ranks, both ways in the mean. Beside it MPI_Send and MPI_Recv of as many bytes, one "
     "after the other; and once more where both touch 12 MB between two messages, as a stage "
     "touches its own: then they are in no cache. Goal: 1.2 times.",
     "bare_ms", "bare MPI"},
    {"step", "Two ranks and two workers",
     "The same run of two stages over two ranks and in one process with two workers. Goal: 1.03 "
     "times.",
     "one_process_ms", "one process"},
    {"pytorch", "Beside PyTorch",
     "`torch.distributed.pipelining` over gloo, two processes, the same network, cut and "
     "microbatches, an SGD update each. Goal: two thirds of its time.",
     "pytorch_ms", "PyTorch"},
    {"delay", "Four hosts and a delay",
     "Four ranks on four hosts (network namespaces) whose packets take so long, one way; what a "
     "frame "
     "takes once the pipeline is full. Predicted by the simulator from the stages measured alone, "
     "each on its core, and from what a message costs besides the delay: half of what a frame of "
     "`sequential` over two such hosts takes longer than in one process. That is work of the "
     "cores, "
     "half of it the sender's. Goal: within 10 %.",
     "predicted_ms", "predicted"},
};

}  // namespace

std::string ranks_page(const Json& results) {
  std::string text =
      "# Several processes\n\n"
      "    sudo millrace bench ranks --pytorch .venv/bin/python --json ranks.json --plot ranks.png "
      "--page ranks.md\n\n"
      "![Times over the other's](ranks.png)\n\n"
      "The network is `basic`: ten convolutions of 16 features, kernel 5. Times are milliseconds a "
      "sample over whole runs of `millrace run` (source, log and page beside), " +
      results["microbatches"].dump() + " microbatches, medians of " + results["rounds"].dump() +
      " rounds in turns; ratio: the median of a round's ratios. Other programs took " +
      format("%.2f", results["others_cores"].get<double>()) +
      " cores meanwhile, those of the launched ranks among them.\n\n";
  if (const std::string lacks = results["lacks_hosts"]; !lacks.empty())
    text += "There were no hosts on this machine: " + lacks + "\n\n";
  for (const Section& section : kSections) {
    std::string rows;
    for (const Json& arm : results["arms"]) {
      if (arm["kind"] != section.kind) continue;
      const bool bytes = arm.contains("bytes");
      rows += "| " + arm["arm"].get<std::string>() + " | " +
              format("%.3f | %.3f | %.2f |", arm["ours_ms"].get<double>(),
                     arm[section.other].get<double>(), arm["ratio"].get<double>()) +
              (bytes ? format(" %.3f | ", arm["bare_cold_ms"].get<double>()) + arm["bytes"].dump() +
                           " | " + format("%.3f |", arm["in_process_ms"].get<double>())
                     : "") +
              "\n";
    }
    if (rows.empty()) continue;
    const bool handoff = section.kind == std::string("handoff");
    text += std::string("## ") + section.title + "\n\n" + section.words + "\n\n| | ours ms | " +
            section.ratio + " ms | ratio |" +
            (handoff ? " bare, cold ms | bytes | in process ms |" : "") + "\n|---|---|---|---|" +
            (handoff ? "---|---|---|" : "") + "\n" + rows + "\n";
  }
  const Json& where = results["provenance"];
  return text + "Millrace " + where["version"].get<std::string>() + ", LibTorch " +
         where["libtorch"].get<std::string>() + ", " + where["cpu"].get<std::string>() + ".\n";
}

void plot_ranks(const Json& results, const std::string& path) {
  io::BarChart chart{.title = "Millrace's time over the other's", .y_label = "ratio"};
  std::vector<double> ratios;
  for (const Json& arm : results["arms"]) {
    chart.categories.push_back(arm["arm"]);
    ratios.push_back(arm["ratio"]);
  }
  chart.groups.emplace_back("bare MPI, one process, PyTorch, predicted", std::move(ratios));
  io::write_bars(chart, path);
}

}  // namespace millrace::bench
