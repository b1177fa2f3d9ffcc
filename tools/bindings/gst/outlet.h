// Pictures and events in transit from a run to a source pad, in stream order.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "tools/app/run.h"
#include "tools/bindings/gst/mailbox.h"

namespace millrace::gst {

/// A prediction and the stamp of its frame.
struct Shown {
  Stamp stamp;
  std::int64_t frame = 0;  ///< its number at the source
  float loss = 0;          ///< NaN: there was no target
  std::vector<float> input, target, prediction;
};

/// Thread-safe: the last stage's worker puts pictures, the sink pad puts events, and the source
/// pad's task calls next(). An event leaves before the first picture of a frame that arrived after
/// it.
class Outlet {
 public:
  /// `room`: pictures that may wait.
  explicit Outlet(int room);
  ~Outlet();
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  /// If there is no room, waits for it or drops the picture.
  void put(const app::Prediction& prediction, const Stamp& stamp, bool wait);
  /// Takes ownership. `position`: of the first buffer after the event.
  void put(GstEvent* event, std::int64_t position);
  /// No picture follows.
  void end();
  /// On: discards everything, and later also pictures of frames before `position`; next() returns.
  /// Off: starts again.
  void flush(bool on, std::int64_t position);
  /// Empty and flushing, as made: positions start at 0 again.
  void reset();

  enum class Next { picture, event, end, flushing };
  /// Waits for the next item. The caller owns an event.
  Next next(Shown& picture, GstEvent*& event);

  std::int64_t dropped() const;

 private:
  void drop_pictures();
  void drop_events(bool all);

  const std::size_t room_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Shown> waiting_;
  std::vector<Shown> spare_;  ///< storage for reuse
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
