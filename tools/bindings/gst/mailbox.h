// Frames in transit from a sink pad to the reader of a run, and the stamps of their buffers.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include <gst/gst.h>

#include "io/source/source.h"
#include "io/source/stream_health.h"

namespace millrace::gst {

/// A frame's buffer without its pixels.
struct Stamp {
  std::int64_t position = 0;  ///< buffers before it on the pad
  GstClockTime pts = GST_CLOCK_TIME_NONE;
  GstClockTime duration = GST_CLOCK_TIME_NONE;
};

/// Room for one frame. Thread-safe: the streaming thread calls put(), the reader take(), and the
/// last stage's worker stamp_of().
class Mailbox {
 public:
  enum class Put { taken, flushing, over };

  /// Swaps `frame` into the mailbox. `wait`: blocks until there is room; otherwise the frame in the
  /// mailbox is lost and counted. `gap`: frames are missing before it.
  Put put(io::Frame& frame, const Stamp& stamp, bool gap, bool wait);
  /// No frame follows.
  void end();
  /// On: discards the waiting frame and refuses further ones.
  void flush(bool on);

  io::ReadStatus take(io::Frame& out, std::chrono::milliseconds timeout);
  /// The stamp of the id-th frame that take() returned, from 0. None if it is not taken yet or
  /// forgotten.
  std::optional<Stamp> stamp_of(std::int64_t id);
  /// Forgets the stamps before frame `id`.
  void forget_before(std::int64_t id);

  std::int64_t lost() const;
  /// A gap counts as a reconnect: the frames around it are not consecutive.
  const std::shared_ptr<io::StreamHealth>& health() const { return health_; }

 private:
  const std::shared_ptr<io::StreamHealth> health_ = std::make_shared<io::StreamHealth>();
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  io::Frame frame_;
  Stamp stamp_;
  bool full_ = false, ended_ = false, flushing_ = false;
  bool gap_ = false;
  std::int64_t lost_ = 0;
  std::int64_t first_ = 0;    ///< frame of stamps_.front()
  std::deque<Stamp> stamps_;  ///< of taken frames
};

/// The mailbox as a run's source, which shares its ownership.
std::unique_ptr<io::Source> source_of(std::shared_ptr<Mailbox> mailbox, const io::SourceInfo& info);

}  // namespace millrace::gst
