// A run on frames that the caller passes in. Needs no LibTorch to be included.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tools/app/config/config.h"

namespace millrace::app {

/// What the network made of one frame.
struct GivenResult {
  std::int64_t index = 0;         ///< 0, 1, ... of this start(), of frames that were predicted
  std::int64_t frame = 0;         ///< what give() returned
  float loss = 0;                 ///< before it was learned from; NaN: there was no target
  double latency_ms = 0;          ///< from give() to the return of this result
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

/// Frames in a sample of the config's task, the latest one's channels last. Throws ConfigError.
int context_of(const Config& config);

/// How a start() takes frames.
struct GivenPace {
  bool live = false;  ///< the newest frame wins, else give() waits; source.drop may say otherwise
  int ahead = 32;     ///< results that may wait before the pipeline does; memory is set aside
};

/// A Run on frames that the caller passes in. Reads all of the config but [source], [checkpoint],
/// [output] and task.labels. give() and end() are one thread's, next() and over() one thread's; all
/// else is called by any one thread. Methods throw as Run's do.
class GivenRun {
 public:
  /// Frames are float32 [C,H,W]. `targets`: each comes with a target of the prediction's shape;
  /// else the task makes the target of the frames. `live`: as start() will be asked.
  GivenRun(const Config& config, const stages::ImageShape& frame, bool targets, bool live = false);
  ~GivenRun();

  /// Starts learning, or continues with the current weights once the run before is over. Returns
  /// when the pipeline is ready for the first frame.
  void start(const GivenPace& pace);
  /// Copies a frame and its target (null: unknown, or not used). `time`: seconds, by the caller's
  /// clock; 0: unknown. Returns the frame's number: 0, 1, ... of this start(); -1: it is over, and
  /// the frame counts as dropped.
  std::int64_t give(const float* input, const float* target, double time = 0);
  /// No more frames follow.
  void end();
  /// Also discards the frames that still wait.
  void stop();
  /// The next frame's result, in order, if it comes within `patience`. Results come once all
  /// frames of their update are predicted; frames without an update have none. Rethrows what a
  /// worker threw.
  std::optional<GivenResult> next(std::chrono::milliseconds patience);
  /// Whether all results have been returned.
  bool over() const;

  stages::ImageShape prediction_shape() const;
  /// Frames that are learned from together.
  int frames_an_update() const;
  /// Age of each stage's gradients when they are applied, in frames.
  std::vector<std::int64_t> gradient_age() const;
  /// Only when over() or before start().
  std::vector<NamedWeights> weights() const;
  /// Replaces weights of the same names; the optimizer's state stays. As weights().
  void set_weights(const std::vector<NamedWeights>& weights);
  std::string report() const;  ///< of the latest start(), as Run's
  std::vector<std::string> remarks() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace millrace::app
