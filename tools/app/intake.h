#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/monitor/real_time.h"
#include "engine/monitor/tally.h"
#include "io/queue/frame_queue.h"
#include "io/queue/reader.h"
#include "io/queue/resizer.h"
#include "io/source/labels.h"
#include "io/source/source.h"
#include "stages/model_spec.h"
#include "tools/app/config/task.h"
#include "tools/app/run.h"

namespace millrace::app {

io::SourceOptions source_options(const Config& config);
std::optional<io::Labels> configured_labels(const Config& config);
/// From the config, configured_labels() or the source's folders; empty: none are known.
std::vector<std::string> class_names(const Config& config, const std::optional<io::Labels>& labels);
/// The view and the samples' size. Throws ConfigError if source.roi lies outside the picture.
io::ResizerOptions resizer_options(const Config& config, const io::SourceInfo& info);
/// One line if samples and view differ in aspect ratio; otherwise "".
std::string squash_note(const Config& config, const io::SourceInfo& info);
/// Whether frames arrive, or are to be delivered, at the stream's own rate.
bool comes_live(const Config& config, const io::SourceInfo& info);
/// The frame limit is left unset.
io::ReaderOptions reader_options(const Config& config, const io::SourceInfo& info);
io::Drop drop_policy(const Config& config, const io::SourceInfo& info);

/// Thread-bound, except frames().
struct Intake {
  /// Opens `own`, or if empty the config's source, or nothing if the caller fills the queue.
  /// `asked` outlives this. Throws io::SourceError, or ConfigError if it doesn't suit the source.
  explicit Intake(const Config& asked, const std::function<std::unique_ptr<io::Source>()>& own = {},
                  std::shared_ptr<const GivenStream> from_caller = nullptr)
      : config(asked),
        given(std::move(from_caller)),
        source(given ? nullptr
               : own ? own()
                     : io::open_source(source_options(config))),
        info(given ? info_of(*given) : source->info()),
        health(given ? std::make_shared<io::StreamHealth>() : source->health()),
        live(comes_live(config, info)),
        drop(drop_policy(config, info)),
        queue(queue_capacity(config, drop, given != nullptr), drop),
        resizer(resizer_options(config, info)) {}

  stages::ImageShape shape() const {
    return {config.source.channels, resizer.height(), resizer.width()};
  }
  /// F; 0: unknown.
  double fps() const { return config.monitor.fps > 0 ? config.monitor.fps : info.fps; }
  /// All frames so far; `fates`: those the pipeline has handled. Any thread.
  engine::FrameCounts frames(const engine::FateCounts& fates) const {
    return {.received = queue.received(),
            .trained = fates.trained,
            .dropped = queue.dropped() + fates.predicted_only,
            .predicted_only = fates.predicted_only,
            .rejected = queue.rejected() + fates.without_target + fates.incomplete,
            .without_target = fates.without_target,
            .incomplete = fates.incomplete,
            .replayed = fates.replayed};
  }
  /// Starts reading. If nothing is dropped, it ends after `limit` frames (0: no limit).
  void start(std::int64_t limit = 0) {
    if (given) return given->ready();
    // Read no frame beyond the limit, unless some frames may not be trained on.
    const bool exact = drop == io::Drop::never && limit > 0 && config.monitor.policy != "skip" &&
                       config.task.labels.empty() &&
                       task_type(config.task.kind).target != TargetFrom::teller;
    io::ReaderOptions options = reader_options(config, info);
    options.limit = exact ? limit : 0;
    options.seen = seen;
    reader_ = std::make_unique<io::Reader>(std::move(source), queue, options);
  }
  void end() {
    if (!reader_) return queue.close();
    reader_->stop();
    reader_->leave_hung();
  }
  void stop() {
    queue.stop();
    end();
    if (reader_) reader_->join();
  }
  /// The stream's rate by the frames so far; 0: unknown.
  double seen_fps() const {
    return reader_ ? reader_->fps() : given_fps.load(std::memory_order_relaxed);
  }
  /// Whether seen_fps() is by their time stamps, rather than the source's word.
  bool fps_by_stamps() const { return !reader_ || reader_->fps_by_stamps(); }
  /// Why the stream broke off; "": it didn't. After stop().
  std::string error() const { return reader_ ? reader_->error() : ""; }
  /// Whether the source hung and its thread was abandoned. After stop().
  bool hung() const { return reader_ && reader_->hung(); }

  const Config& config;

  const std::shared_ptr<const GivenStream> given;  ///< null: frames come from a source
  std::unique_ptr<io::Source> source;              ///< until start()
  const io::SourceInfo info;
  const std::shared_ptr<const io::StreamHealth> health;
  const bool live;  ///< frames arrive at their own rate
  const io::Drop drop;
  io::FrameQueue queue;
  io::Resizer resizer;
  std::function<void(const io::Frame&)> seen;  ///< io::ReaderOptions::seen; set before start()
  std::atomic<double> given_fps{0.0};          ///< written by the thread that fills the queue

 private:
  static int queue_capacity(const Config& config, io::Drop drop, bool given) {
    // Given frames: a slow pipeline builds up no backlog. Others: evens out bursts of the decoder.
    if (drop == io::Drop::never) return given ? 1 : 8;
    // Frames queue while the pipeline trains on one; most are then only predicted, which is fast.
    const int least = !given && config.monitor.policy == "skip" ? 4 : 1;
    if (task_type(config.task.kind).target != TargetFrom::later_frame) return least;
    // When frames are dropped, those of a sample and its target must still follow one another. They
    // have the source's size, so few may wait.
    return std::clamp(config.task.horizon + config.task.context, least, 8);
  }
  static io::SourceInfo info_of(const GivenStream& given) {
    return {.kind = "given",
            .width = int(given.shape[2]),
            .height = int(given.shape[1]),
            .live = given.live};
  }

  std::unique_ptr<io::Reader> reader_;
};

}  // namespace millrace::app
