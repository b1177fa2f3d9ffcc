// Frames on their way from a sink pad to the reader of a run, and what their buffers say of them.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include <gst/gst.h>

#include "io/source/source.h"
#include "io/source/stream_health.h"

namespace millrace::gst {

/// What a frame's buffer says of it beside its pixels.
struct Stamp {
  std::int64_t position = 0;  ///< buffers that came before it on the pad
  GstClockTime pts = GST_CLOCK_TIME_NONE;
  GstClockTime duration = GST_CLOCK_TIME_NONE;
};

/// Room for one frame. Thread-safe: put() by the streaming thread, take() by the reader's,
/// stamp_of() by the one that sees predictions.
class Mailbox {
 public:
  enum class Put { taken, flushing, over };

  /// Hands over `frame`, whose storage is exchanged for another. `wait`: until there is room; else
  /// the frame that still lies there is lost, and counted. `gap`: others are missing before it.
  Put put(io::Frame& frame, const Stamp& stamp, bool gap, bool wait);
  /// No frame follows.
  void end();
  /// While it is on, frames are refused and the one that lies there is thrown away.
  void flush(bool on);

  io::ReadStatus take(io::Frame& out, std::chrono::milliseconds timeout);
  /// Of frame `id`, in the order of take(). None: it is not known any more, since a later one was
  /// asked for, or not yet.
  std::optional<Stamp> stamp_of(std::int64_t id);
  /// Those before frame `id` are not asked for any more.
  void forget_before(std::int64_t id);

  std::int64_t lost() const;
  /// A gap counts as a reconnect: frames before and after it are no neighbours.
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
  std::int64_t first_ = 0;    ///< frame that stamps_ begin with
  std::deque<Stamp> stamps_;  ///< of frames that were taken
};

/// The mailbox as a run's source. Both outlive one another: they share it.
std::unique_ptr<io::Source> source_of(std::shared_ptr<Mailbox> mailbox, const io::SourceInfo& info);

}  // namespace millrace::gst
