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

/// Throws ConfigError if `config` suits no network of `modules` modules.
void check_modules(const Config& config, std::int64_t modules);

struct GivenFrame {
  at::Tensor input;  ///< [C,H,W]
  int label = -1;    ///< from the source or task.labels; -1: none
};

/// Frames of a config's source, to pass to a GivenRun. Reads [source] and task.labels.
/// Thread-bound; the source is read on its own thread.
class GivenFrames {
 public:
  /// Opens the source. Throws ConfigError, io::SourceError.
  explicit GivenFrames(const Config& config);
  /// The next frame, if it arrives within `patience`. Throws io::SourceError if the stream broke.
  std::optional<GivenFrame> next(std::chrono::milliseconds patience);
  bool over() const { return over_; }
  double fps() const { return intake_.info.fps; }  ///< 0: unknown
  bool live() const { return intake_.live; }
  /// The latest frame's segment: dropped frames, outages and the restarts of a loop begin another.
  std::int64_t segment() const { return segment_; }
  double time() const { return time_; }  ///< the latest frame's position in the stream, in seconds
  /// Frames that were dropped, and rejected, since the last call.
  std::pair<std::int64_t, std::int64_t> lost();

 private:
  const Config config_;
  Intake intake_;
  std::int64_t segment_ = 0;
  std::int64_t last_ = -1, last_segment_ = 0;  ///< the latest frame's id, and its source's segment
  double time_ = 0;
  io::FrameCounts told_;  ///< by lost()
  bool over_ = false;
};

struct GivenResult {
  std::int64_t index = -1;  ///< 0, 1, ... of this start(), counting predicted frames
  std::int64_t frame = -1;  ///< give()'s return value
  float loss = 0;           ///< before the update; NaN: no target
  engine::Clock::time_point given;
  at::Tensor picture;     ///< [C,H,W]: the frame to predict, or the input; undefined: unknown
  at::Tensor prediction;  ///< [C,H,W], as in prediction_shape(); allocated by the last stage
  double novelty = 0;     ///< Novelty::deviation()
  std::string event;      ///< JSON of the event that begins here; "": none
};

/// A Run on frames that the caller passes in. Uses all of the config but [source], [checkpoint] and
/// [output]; of task.labels the classes and how long a label holds. One thread calls give() and
/// end(), one calls next() and over(), and any single thread calls the rest, except report() and
/// remarks(), which any thread may call. Throws as Run does.
class GivenRun {
 public:
  /// Frames are float32 [C,H,W]. `targets`: each comes with a target of the prediction's shape;
  /// otherwise the task derives targets from the frames. `live`: the expected argument of start().
  GivenRun(const Config& config, const stages::ImageShape& frame, bool targets, bool live = false);
  ~GivenRun();

  /// Starts learning from the current weights. Returns when the pipeline is ready for frames.
  /// `live`: the newest frame wins, otherwise give() waits; source.drop may override this.
  /// `ahead`: results that may queue before the pipeline waits.
  void start(bool live, int ahead);
  /// Copies a frame and its target (null: unknown, or not used). `time`: seconds by the caller's
  /// clock; 0: unknown. `segment`: see GivenFrames. Returns the frame's number, 0, 1, ... of this
  /// start(); -1: the run is over, and the frame counts as dropped.
  std::int64_t give(const float* input, const float* target, double time = 0,
                    std::int64_t segment = 0);
  /// Counts frames that were lost before they could be given. By the thread of give().
  void lose(std::int64_t dropped, std::int64_t rejected) { queue().lose(dropped, rejected); }
  void end();
  /// Discards waiting frames, too.
  void stop();
  /// The next result in frame order, if it arrives within `patience`: once all frames of its update
  /// are predicted. Frames without an update have none. Rethrows a worker's exception.
  std::optional<GivenResult> next(std::chrono::milliseconds patience);
  bool over() const { return closed_ && complete_ == 0; }

  stages::ImageShape prediction_shape() const;
  int frames_an_update() const;
  /// Per stage, the age of gradients when they are applied, in frames.
  std::vector<std::int64_t> gradient_age() const;
  /// A copy. Only when over() or before start().
  stages::StateDict weights() const;
  /// Replaces weights of the same names, but not the optimizer's state. Allowed when weights() is.
  void set_weights(const stages::StateDict& weights);
  std::string report() const;  ///< of the latest start(); see Run::report()
  std::vector<std::string> remarks() const;

 private:
  using Results = moodycamel::BlockingReaderWriterCircularBuffer<GivenResult>;

  /// Builds a run from the config's weights or the learned ones.
  void build(bool live);
  void rebuild(stages::StateDict state, bool live);
  void learn();
  /// Gives the report to waiting threads. Called by the run's thread.
  void answer(bool ended);
  engine::Trainer& trainer() const;
  io::FrameQueue& queue() const;

  const Config config_;
  const stages::ImageShape frame_;
  const bool targets_;
  stages::StateDict learned_;  ///< where the next run starts; empty: the config's weights
  std::vector<int> cut_;
  std::unique_ptr<Run> run_;
  bool ran_ = false, live_ = false;
  std::promise<void> ready_;
  mutable std::mutex mutex_;  ///< guards learning_ and asking_
  bool learning_ = false;
  mutable std::vector<std::promise<std::string>*> asking_;
  // The state of the latest start().
  std::unique_ptr<Results> results_;  ///< a negative index ends them; full: the last stage waits
  std::future<void> running_;
  bool closed_ = true;
  std::deque<GivenResult> held_;
  /// How many of `held_` may be returned: their updates are done.
  std::size_t complete_ = 0;
  std::int64_t given_ = 0;
  std::optional<io::Timeline> timeline_;
  engine::Clock::time_point last_;
};

}  // namespace millrace::app
