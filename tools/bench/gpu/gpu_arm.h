// What an arm of the GPU benchmark is, and how its turns are taken.
#pragma once

#include <chrono>
#include <functional>  // streams, arms, progress
#include <memory>      // arms
#include <string>      // names
#include <vector>      // turns

#include <nlohmann/json.hpp>  // results

#include "engine/trainer/trainer.h"
#include "tools/bench/bench_arm.h"

namespace millrace::bench {

/// How the GPU benchmark is taken. What stands here is what a GPU is measured with: 127 s of turns
/// (20 of graph against eager, 5 each of frames as bytes and of three arms against bare graphs, 15
/// of latency, 72 of networks). With recording and slow frames 3
/// minutes, and what slow networks' last turns take longer, since measured() stops an arm that
/// takes long. Tests have less of everything, and a double for the device.
struct GpuBench {
  engine::Device device = {.cuda = true, .index = 0};  ///< that all stages share
  /// As TrainerOptions::make_backend; empty: the device's own.
  std::function<std::unique_ptr<capture::Backend>(c10::Device)> make_backend;
  std::vector<std::string> networks = bench_network_names();
  std::vector<std::int64_t> sizes = {128, 256, 512, 1024};  ///< pixels a side
  std::vector<int> stages = {1, 2, 4, 8};
  int turns = 5;          ///< of each arm
  int network_turns = 3;  ///< of the arms of networks and sizes, which are many
  double seconds = 0.5;   ///< that each side of an arm takes in a turn
  /// Told of each arm as it begins, and given all results so far after it; both may be empty.
  std::function<void(const std::string& arm)> progress;
  std::function<void(const nlohmann::ordered_json&)> keep;
};

/// Figures by name, one value a turn, in the order in which they were first added.
class Figures {
 public:
  void add(const std::string& name, double value);
  /// Adds `name`: of this turn, `over` / `under`.
  void add_ratio(const std::string& name, const std::string& over, const std::string& under);
  /// {name: median, ..., "turns": {name: [values], ...}}. A ratio's median is that of its turns'.
  nlohmann::ordered_json json() const;

 private:
  nlohmann::ordered_json turns_ = nlohmann::ordered_json::object();
};

/// Ways of doing the same, measured in turn. Made, used and destroyed by one thread.
class GpuArm {
 public:
  virtual ~GpuArm() = default;
  /// Measures each way for about `seconds`.
  virtual void turn(double seconds, Figures& figures) = 0;
};

using MakeArm = std::function<std::unique_ptr<GpuArm>()>;

/// `entry` with the figures of `turns` turns of the arm that `make` makes: fewer, but at least one,
/// if they take too long. If anything throws, "error" stands there with its words instead.
nlohmann::ordered_json measured(const GpuBench& how, nlohmann::ordered_json entry, int turns,
                                const MakeArm& make);

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

}  // namespace millrace::bench
