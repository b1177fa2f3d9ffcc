// A run on frames that the caller passes in.
#pragma once

#include <ATen/core/Tensor.h>
#include <readerwriterqueue/readerwritercircularbuffer.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/monitor/clock.h"
#include "io/source/timeline.h"
#include "stages/parameters.h"
#include "tools/app/intake.h"
#include "tools/app/run.h"

namespace millrace::engine {
class Trainer;
}

namespace millrace::app {

/// Throws ConfigError if `config` would suit no network of `modules` modules.
void check_modules(const Config& config, std::int64_t modules);

/// Frames in a sample of the config's task, the latest one's channels last. Throws ConfigError.
int context_of(const Config& config);

/// A frame as a sample.
struct GivenFrame {
  at::Tensor input;  ///< [C,H,W]
  int label = -1;    ///< class from the source or task.labels; -1: none
};

/// Frames of a config's source, for callers that pass them to a GivenRun. Reads [source] and
/// task.labels. Thread-bound; the source is read on a thread of its own.
class GivenFrames {
 public:
  /// Opens the source. Throws ConfigError, io::SourceError.
  explicit GivenFrames(const Config& config);
  /// The next frame, if it comes within `patience`. Throws io::SourceError if the stream broke.
  std::optional<GivenFrame> next(std::chrono::milliseconds patience);
  /// Whether the stream has ended.
  bool over() const { return over_; }

 private:
  const Config config_;
  Intake intake_;
  bool over_ = false;
};

/// What the network made of one frame.
struct GivenResult {
  std::int64_t index = -1;  ///< 0, 1, ... of this start(), of frames that were predicted
  std::int64_t frame = -1;  ///< what give() returned
  float loss = 0;           ///< before it was learned from; NaN: there was no target
  engine::Clock::time_point given;
  at::Tensor prediction;  ///< [C,H,W], as prediction_shape() says; allocated by the last stage
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
  /// when the pipeline is ready for the first frame. `live`: the newest frame wins, else give()
  /// waits; source.drop may say otherwise. `ahead`: results that may wait before the pipeline does.
  void start(bool live, int ahead);
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
  bool over() const { return closed_ && complete_ == 0; }

  stages::ImageShape prediction_shape() const;
  /// Frames that are learned from together.
  int frames_an_update() const;
  /// Age of each stage's gradients when they are applied, in frames.
  std::vector<std::int64_t> gradient_age() const;
  /// Copies. Only when over() or before start().
  stages::StateDict weights() const;
  /// Replaces weights of the same names; the optimizer's state stays. As weights().
  void set_weights(const stages::StateDict& weights);
  std::string report() const;  ///< of the latest start(), as Run's
  std::vector<std::string> remarks() const { return run_->remarks(); }

 private:
  using Results = moodycamel::BlockingReaderWriterCircularBuffer<GivenResult>;

  /// A run that starts with the config's weights or what was learned.
  void build(bool live);
  /// A run that goes on from `state` instead.
  void rebuild(stages::StateDict state, bool live);
  void learn();
  /// Gives the report to the threads that wait for it. Called by the run's thread.
  void answer(bool ended);
  engine::Trainer& trainer() const;
  io::FrameQueue& queue() const;

  const Config config_;
  const stages::ImageShape frame_;
  const bool targets_;
  stages::StateDict learned_;  ///< what the next run starts from; empty: the config's weights
  std::vector<int> cut_;
  std::unique_ptr<Run> run_;
  bool ran_ = false, live_ = false;
  std::promise<void> ready_;
  mutable std::mutex mutex_;  ///< of the next two
  bool learning_ = false;
  mutable std::vector<std::promise<std::string>*> asking_;  ///< for a report
  // Of the latest start().
  std::unique_ptr<Results> results_;  ///< an index below 0 ends them; full: the last stage waits
  std::future<void> running_;
  bool closed_ = true;
  std::deque<GivenResult> held_;
  std::size_t complete_ =
      0;  ///< the first so many of `held_` may be returned: their updates are done
  // The giver's.
  std::int64_t given_ = 0;
  std::optional<io::Timeline> timeline_;
  engine::Clock::time_point last_;
};

}  // namespace millrace::app
