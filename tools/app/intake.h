// A run's source, what gives its frames targets, and the queue they wait in.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

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

// What the config says.

io::SourceOptions source_options(const Config& config);
/// The labels in the file that task.labels names; none if it names no file. Throws ConfigError.
std::optional<io::Labels> configured_labels(const Config& config);
/// Takes the labels that users give during the run; null if they give none.
std::shared_ptr<io::LiveLabels> live_labels(const Config& config);
/// Gives targets to frames of `info`: masks for the part of the picture that `view` shows, or
/// another stream's frames of the size of `target`. Nothing if task names neither. Throws
/// ConfigError, io::SourceError.
io::Teller open_teller(const Config& config, const io::SourceInfo& info,
                       const io::ResizerOptions& view, const stages::ImageShape& target);
/// The view and the size of samples. Throws ConfigError if source.roi lies outside the picture.
io::ResizerOptions resizer_options(const Config& config, const io::SourceInfo& info);
/// One line if samples have another aspect ratio than the view; else "".
std::string squash_note(const Config& config, const io::SourceInfo& info);
/// Whether frames arrive, or are to be delivered, at the stream's own rate.
bool paced_live(const Config& config, const io::SourceInfo& info);
/// Without a limit.
io::ReaderOptions reader_options(const Config& config, const io::SourceInfo& info);
/// `live`: frames arrive at their own rate.
io::Drop drop_policy(const Config& config, bool live);

using SourceOpener = std::function<std::unique_ptr<io::Source>()>;

/// Thread-bound, except frames().
struct Intake {
  /// Opens `own`, or the config's source if that is empty, or nothing if the caller puts frames
  /// into the queue. `asked` outlives this. Throws io::SourceError, or ConfigError if it
  /// does not suit the source.
  explicit Intake(const Config& asked, const SourceOpener& own = {},
                  std::shared_ptr<const GivenStream> from_caller = nullptr)
      : config(asked),
        given(std::move(from_caller)),
        source(given ? nullptr
               : own ? own()
                     : io::open_source(source_options(config))),
        info(given ? info_of(*given) : source->info()),
        health(given ? std::make_shared<io::StreamHealth>() : source->health()),
        live(paced_live(config, info) || info.live),
        drop(drop_policy(config, live)),
        queue(queue_capacity(config, drop, given != nullptr), drop),
        resizer(resizer_options(config, info)) {}

  /// Of a sample's input.
  stages::ImageShape shape() const {
    return {config.source.channels, resizer.height(), resizer.width()};
  }
  /// F; 0: unknown.
  double fps() const { return config.monitor.fps > 0 ? config.monitor.fps : info.fps; }
  /// Frames so far, of which the pipeline has handled `fates`. Any thread.
  engine::FrameCounts frames(const engine::FateCounts& fates) const {
    return {.received = queue.received(),
            .trained = fates.trained,
            .dropped = queue.dropped() + fates.predicted_only,
            .predicted_only = fates.predicted_only,
            .rejected = queue.rejected() + fates.untold,
            .untold = fates.untold,
            .replayed = fates.replayed};
  }
  /// Starts reading. If nothing is dropped, it ends after `limit` frames (0: no limit).
  void start(std::int64_t limit = 0) {
    if (given) return given->ready();
    // Reads no frame beyond the limit, unless some frames may not be trained on.
    const bool exact = drop == io::Drop::never && limit > 0 && config.monitor.policy != "skip" &&
                       config.task.labels.empty() &&
                       task_type(config.task.kind).target != TargetFrom::teller;
    io::ReaderOptions options = reader_options(config, info);
    options.limit = exact ? limit : 0;
    reader_ = std::make_unique<io::Reader>(std::move(source), queue, options);
  }
  /// No further frame is read.
  void end() {
    if (!reader_) return queue.close();
    reader_->stop();
    reader_->leave_hung();
  }
  /// Stops reading and waits for the reader.
  void stop() {
    queue.stop();
    end();
    if (reader_) reader_->join();
  }
  /// By the frames so far; 0: unknown.
  double seen_fps() const {
    return reader_ ? reader_->fps() : given_fps.load(std::memory_order_relaxed);
  }
  /// Why the stream broke off; "": it did not. After stop().
  std::string error() const { return reader_ ? reader_->error() : ""; }
  /// The source hung and was left behind. After stop().
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
  std::atomic<double> given_fps{0.0};  ///< written by who puts frames into the queue

 private:
  /// How many frames may wait.
  static int queue_capacity(const Config& config, io::Drop drop, bool given) {
    if (given) return 1;                    // a caller's slow pipeline builds up no backlog
    if (drop == io::Drop::never) return 8;  // evens out a reader that decodes in bursts
    // While the pipeline trains on one frame, others wait that will only be predicted, which is
    // quick.
    return config.monitor.policy == "skip" ? 4 : 1;
  }
  static io::SourceInfo info_of(const GivenStream& given) {
    return {.kind = "given",
            .width = int(given.shape[2]),
            .height = int(given.shape[1]),
            .live = given.live};
  }

  std::unique_ptr<io::Reader> reader_;  ///< null until start()
};

}  // namespace millrace::app
