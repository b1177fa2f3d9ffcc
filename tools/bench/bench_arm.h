// One arm of a benchmark: a trainer fed with frames made beforehand.
#pragma once

#include <vector>

#include "engine/monitor/median.h"
#include "engine/trainer/trainer.h"

namespace millrace::bench {

/// The PARTIME slides' networks, by name: basic (10 layers, 16 features, kernel 5), layers (x3),
/// features (x3), kernel (x3); or the preset of that name.
stages::ModelSpec bench_network(const std::string& name);
/// The slides'.
const std::vector<std::string>& bench_network_names();

/// What one turn of an arm measured. Times in milliseconds.
struct Turn {
  double fps = 0;
  engine::Reading reading;
  std::vector<engine::StageFacts> facts;  ///< by stage
};

/// Trains a network of `stages` stages on synthetic frames for about `seconds` and measures. The
/// cut is found once and kept over turns, so that they are turns of one thing.
class BenchArm {
 public:
  BenchArm(std::string network, std::int64_t size, int stages, bool channels_last = false);
  /// As `options` say, whose sample is filled in unless `size` is 0, and network, cut and weights
  /// where empty.
  BenchArm(std::string network, std::int64_t size, engine::TrainerOptions options,
           bool channels_last = false);

  const std::string& network() const { return network_; }
  std::int64_t size() const { return size_; }
  int stages() const { return options_.stages; }
  const std::vector<int>& cut() const { return options_.cut; }
  const engine::TrainerOptions& options() const { return options_; }

  /// At least `least` samples, so that every figure exists however long one takes. `observer` may
  /// be null.
  Turn turn(double seconds, std::int64_t least = 8, engine::Observer* observer = nullptr);

 private:
  std::string network_;
  std::int64_t size_;
  engine::TrainerOptions options_;
};

using engine::median;

}  // namespace millrace::bench
