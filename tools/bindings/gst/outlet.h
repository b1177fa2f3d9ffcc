// Pictures and events on their way from a run to a source pad, in the order of the stream.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "tools/bindings/gst/mailbox.h"
#include "tools/app/run.h"

namespace millrace::gst {

/// What the network made of one frame.
struct Shown {
  Stamp stamp;
  std::int64_t frame = 0;  ///< its number at the source
  float loss = 0;          ///< NaN: there was no target
  std::vector<float> input, target, prediction;
};

/// Thread-safe: pictures come from the last stage's worker, events from the sink pad, next() is the
/// source pad's task's. An event leaves before the first picture of a frame that came after it.
class Outlet {
 public:
  /// `room`: pictures that may wait.
  explicit Outlet(int room);
  ~Outlet();
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  /// Where there is no room, waits for it, or drops the picture.
  void put(const app::Prediction& prediction, const Stamp& stamp, bool wait);
  /// Takes ownership. `position`: of the first buffer after it.
  void put(GstEvent* event, std::int64_t position);
  /// No picture follows.
  void end();
  /// On: throws everything away, and pictures of frames before `position`, too; next() returns.
  /// Off: begins anew.
  void flush(bool on, std::int64_t position);

  enum class Next { picture, event, end, flushing };
  /// Waits for what is next on the pad. An event is the caller's.
  Next next(Shown& picture, GstEvent*& event);

  std::int64_t dropped() const;

 private:
  void drop_flushed_events();

  const std::size_t room_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Shown> waiting_;
  std::vector<Shown> spare_;  ///< storage that is used again
  struct Event {
    GstEvent* event;
    std::int64_t position;
  };
  std::deque<Event> events_;
  std::int64_t from_ = 0;  ///< pictures of earlier frames were flushed
  std::int64_t dropped_ = 0;
  bool ended_ = false, flushing_ = true;
};

}  // namespace millrace::gst
