// A run whose samples the caller gives and whose results it takes. Needs no LibTorch to be
// included.
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
  double latency_ms = 0;          ///< from being taken from those that wait to the prediction
  std::vector<float> prediction;  ///< [C,H,W], as prediction_shape() says
};

/// A tensor by name: float32, row after row.
struct NamedWeights {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

/// Throws ConfigError for what of `config` no network of `modules` modules could be run with.
void check_modules(const Config& config, std::int64_t modules);

/// Learns from samples in the caller's memory: of the config it reads [task], [model], [pipeline],
/// [optimizer], [correction] and [guard]. Used by one thread; the engine has its own. All throw as
/// Run does.
class GivenRun {
 public:
  /// Samples are float32 [C,H,W]. `targets`: each comes with one, of the prediction's shape; else
  /// it is its own.
  GivenRun(const Config& config, const stages::ImageShape& sample, bool targets);
  ~GivenRun();

  /// Learning begins, or goes on with the weights there are; the run before is over. `ahead`:
  /// samples that may wait, for each of which memory is set aside.
  void start(int ahead);
  /// Whether give() would take a sample.
  bool has_room() const;
  /// Samples that wait for the engine.
  int waiting() const;
  /// `input` and `target` stay valid until the result is there, or over(). `target`: null for what
  /// nobody has told; not looked at where a sample is its own. Only while has_room().
  void give(const float* input, const float* target);
  /// None comes after those given.
  void end();
  /// Nor are those wanted that still wait.
  void stop();
  /// The next sample's, in their order, if it comes within `patience`: of each that updates cover,
  /// when all samples of its update are predicted. Rethrows what a worker threw.
  std::optional<GivenResult> next(std::chrono::milliseconds patience);
  /// Nothing comes any more.
  bool over() const;

  const stages::ImageShape& prediction_shape() const;
  /// By stage: how old gradients are when they are applied, in frames.
  std::vector<std::int64_t> gradient_age() const;
  /// While it is over or was never started.
  std::vector<NamedWeights> weights() const;
  /// Replaces those of the same names; the optimizer's state stays.
  void set_weights(const std::vector<NamedWeights>& weights);
  std::string report() const;  ///< JSON, by the names of a run's report
  std::vector<std::string> remarks() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::app
