// The GPU benchmark: its arms, and how their turns are taken.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/trainer/trainer.h"
#include "tools/bench/bench_arm.h"

namespace millrace::bench {

/// How the GPU benchmark is taken. The defaults are what a GPU is measured with: 127 s of turns (20
/// of graph against eager, 5 each of frames as bytes and of three arms against bare graphs, 15 of
/// latency, 72 of networks). With recording and slow frames 3 minutes, and what slow networks' last
/// turns take longer, since measured() stops an arm that takes long. Tests have less of everything,
/// and a double for the device.
struct GpuBench {
  engine::Device device = {.cuda = true, .index = 0};  ///< that all stages share
  /// As TrainerOptions::make_backend; empty: the device's own.
  std::function<std::unique_ptr<capture::Backend>(c10::Device)> make_backend;
  std::vector<std::string> networks = bench_network_names();
  std::vector<std::int64_t> sizes = {128, 256, 512, 1024};  ///< pixels a side
  std::vector<int> stages = {1, 2, 4, 8};
  int turns = 5;          ///< of each arm
  int network_turns = 3;  ///< of the arms of networks and sizes, which are many
  double seconds = 0.5;   ///< that each way of an arm takes in a turn
  /// Called with each arm as it begins, and with all results so far after it; both may be empty.
  std::function<void(const std::string& arm)> progress;
  std::function<void(const nlohmann::ordered_json&)> keep;
};

/// Takes every arm and returns {"suite", "provenance", "turns", "network_turns", "seconds",
/// "stages": [...], "bytes": [...], "relaunch": [...], "independent": [...], "processor_time":
/// [...], "latency": [...], "networks": [...]}: lists of measured() entries. Blocks; the engine's
/// threads come and go.
nlohmann::ordered_json gpu_results(const GpuBench& how);

/// One way to do an arm's work: its figure, measured for about `seconds`.
struct Way {
  std::string name;
  std::function<double(double seconds)> measure;
};

/// Of one turn: one way's figure over another's.
struct Ratio {
  std::string name, over, under;
};

/// Ways of doing the same, measured in turn. Made, used and destroyed by one thread.
struct GpuArm {
  std::vector<Way> ways;
  std::vector<Ratio> ratios;
};

/// `entry` with the figures of `turns` turns of the arm that `make` makes, fewer, but at least one,
/// if they take too long: {name: median, ..., "turns": {name: [values], ...}}. A ratio's median is
/// that of its turns'. If anything throws, "error" has its words instead.
nlohmann::ordered_json measured(const GpuBench& how, nlohmann::ordered_json entry, int turns,
                                const std::function<GpuArm()>& make);

/// A network of bench_network_names() on samples of `size` x `size`, complete: an arm is such
/// options.
engine::TrainerOptions gpu_options(const GpuBench& how, const std::string& network,
                                   std::int64_t size, int stages, engine::Capture capture);

/// What a device does before it is measured: it starts at a low clock.
constexpr std::chrono::milliseconds kWarmUp(50);

/// A turn of `arm`: predictions a second once the pipeline is full and kWarmUp is over. A mean over
/// time, as launches back to back have one; the monitor's median comes from buckets that are 1.6 %
/// wide.
double frames_a_second(BenchArm& arm, double seconds);

// The engine against bare graphs of the same work: what slots, links and workers cost. `options`:
// the engine's side, recorded. The bare side has the same network, weights, cut and devices, and
// copies the same bytes in and out.

/// engine_ms: between two predictions; bare_ms: the same step as one of our graphs launched back to
/// back; replay_ms: as PyTorch replays one (off a GPU: as bare_ms); bare_ratio, ratio: engine over
/// these. One stage.
GpuArm relaunch_arm(const engine::TrainerOptions& options);

/// engine_fps; bare_fps: as many graphs as there are stages, each on its stream, none waiting for
/// another; ratio: engine over bare. The bare side hands nothing over, so that it lacks the copies
/// at cuts, too.
GpuArm independent_arm(const engine::TrainerOptions& options);

/// engine_us: what the calls of a worker on its step take of the calling thread's processor time;
/// bare_us: Graph::launch() of the same work; ratio: engine over bare. One stage.
GpuArm processor_time_arm(const engine::TrainerOptions& options);

/// engine_ms: from a sample that lies in its slot to its prediction, the pipeline being empty
/// before; bare_ms: one graph of copy, all forwards and copy, from launch to end; step_ms: the same
/// with backward and update; tail: what one in a thousand of the engine's takes over its median;
/// ratio: engine_ms over bare_ms.
GpuArm latency_arm(const engine::TrainerOptions& options);

}  // namespace millrace::bench
