// The benchmark of a machine with GPUs and little else: `gpu_bench [RESULTS.json]`. Stands alone,
// so that it builds where neither the program's libraries nor its sources' are.
#include <fstream>   // results
#include <iostream>  // table

#include "capture/recorder.h"
#include "tools/bench_arm.h"
#include "tools/provenance.h"

namespace {

using namespace millrace;
using Json = nlohmann::ordered_json;

constexpr int kTurns = 5;
constexpr double kSeconds = 1.0;

/// All stages on the first GPU.
engine::TrainerOptions on_gpu(int stages, engine::Capture capture) {
  engine::TrainerOptions options{.stages = stages, .capture = capture};
  for (int stage = 0; stage < stages; ++stage)
    options.devices.push_back({.cuda = true, .index = 0});
  return options;
}

/// Medians of turns taken in turn, so that a change of the machine's clock meets both alike.
struct Pair {
  std::vector<double> graph, eager, step_ms, latency_ms;
};

Json compare(const std::string& network, std::int64_t size, int stages) {
  tools::BenchArm graph(network, size, on_gpu(stages, engine::Capture::graph));
  tools::BenchArm eager(network, size, on_gpu(stages, engine::Capture::eager));
  Pair seen;
  for (int turn = 0; turn < kTurns; ++turn) {
    const tools::Turn recorded = graph.turn(kSeconds);
    seen.graph.push_back(recorded.fps);
    seen.step_ms.push_back(recorded.reading.T);
    seen.latency_ms.push_back(recorded.reading.latency_p50);
    seen.eager.push_back(eager.turn(kSeconds).fps);
  }
  const double fps = engine::median(seen.graph), launched = engine::median(seen.eager);
  std::cout << network << " " << size << " px, " << stages << " stages: " << fps
            << " fps recorded, " << launched << " eager, " << fps / launched << " times\n"
            << std::flush;
  return {{"network", network},
          {"size", size},
          {"stages", stages},
          {"graph_fps", fps},
          {"eager_fps", launched},
          {"ratio", fps / launched},
          {"T_ms", engine::median(seen.step_ms)},
          {"latency_ms", engine::median(seen.latency_ms)},
          {"graph_turns", seen.graph},
          {"eager_turns", seen.eager}};
}

}  // namespace

int main(int argc, char** argv) {
  if (capture::cuda_devices() == 0) {
    std::cout << "no CUDA device here: nothing was measured\n";
    return 0;
  }
  Json results = {{"provenance", tools::provenance(1)}, {"turns", kTurns}, {"seconds", kSeconds}};
  for (const int stages : {1, 2, 4, 8}) results["stages"].push_back(compare("basic", 128, stages));
  for (const std::string& network : tools::bench_network_names()) {
    for (const std::int64_t size : {128, 256, 512, 1024})
      results["networks"].push_back(compare(network, size, 1));
  }
  if (argc > 1) std::ofstream(argv[1]) << results.dump(2) << "\n";
  return 0;
}
