// A run on samples that the caller passes in. Needs no LibTorch to be included.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/app/config/config.h"

namespace millrace::app {

/// What the network made of one sample.
struct GivenResult {
  std::int64_t index = 0;         ///< 0, 1, ... of this start()
  float loss = 0;                 ///< before it was learned from; NaN: there was no target
  double latency_ms = 0;          ///< from the queue to the prediction
  std::vector<float> prediction;  ///< [C,H,W], as prediction_shape() says
};

/// A named tensor: float32, row-major.
struct NamedWeights {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

/// Throws ConfigError if `config` would suit no network of `modules` modules.
void check_modules(const Config& config, std::int64_t modules);

/// Learns from samples in the caller's memory. Reads [task], [model], [pipeline], [optimizer],
/// [correction] and [guard] of the config. Thread-bound; the engine has its own threads. Methods
/// throw as Run's do.
class GivenRun {
 public:
  /// Samples are float32 [C,H,W]. `targets`: each comes with a target of the prediction's shape;
  /// else a sample is its own target.
  GivenRun(const Config& config, const stages::ImageShape& sample, bool targets);
  ~GivenRun();

  /// Starts learning, or continues with the current weights once the run before is over. `ahead`:
  /// how many samples may wait; memory for them is set aside.
  void start(int ahead);
  /// Whether give() would take a sample.
  bool has_room() const;
  /// Number of samples that wait for the engine.
  int waiting() const;
  /// Only while has_room(). `input` and `target` stay valid until the sample's result is returned
  /// or over(). `target`: null if unknown; ignored if a sample is its own target.
  void give(const float* input, const float* target);
  /// No more samples follow.
  void end();
  /// Also discards the samples that still wait.
  void stop();
  /// The next sample's result, in order, if it comes within `patience`. Results come once all
  /// samples of their update are predicted; samples without an update have none. Rethrows what a
  /// worker threw.
  std::optional<GivenResult> next(std::chrono::milliseconds patience);
  /// Whether all results have been returned.
  bool over() const;

  const stages::ImageShape& prediction_shape() const;
  /// Age of each stage's gradients when they are applied, in frames.
  std::vector<std::int64_t> gradient_age() const;
  /// Only when over() or before start().
  std::vector<NamedWeights> weights() const;
  /// Replaces weights of the same names; the optimizer's state stays.
  void set_weights(const std::vector<NamedWeights>& weights);
  std::string report() const;  ///< JSON, with the keys of a run's report
  std::vector<std::string> remarks() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::app
