#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "io/queue/frame_queue.h"
#include "io/source/source.h"

namespace millrace::io {

struct ReaderOptions {
  bool paced = false;  ///< sleep until a frame is due by its pts (files only)
  bool loop = false;
  std::int64_t limit = 0;  ///< stop after this many good frames; 0: no limit
  int ahead = 0;           ///< frames of each segment that don't count towards the limit
  double fps = 0.0;        ///< rate if neither pts nor the source gives one; 0: 25
  /// Gets each good frame before it is queued, on the reader's thread; may be empty.
  std::function<void(const Frame& frame)> seen = {};
  std::chrono::milliseconds teardown{5000};  ///< a source that takes longer to stop is abandoned
};

/// Reads until the source ends or breaks, the limit is reached or stop() is called. Then closes the
/// queue and destroys the source, waiting at most `teardown`. A hanging source is abandoned with
/// its thread, which then accesses nothing of the caller's. pts stay monotonic over loops.
/// Thread-safe.
class Reader {
 public:
  /// `queue` outlives this object.
  Reader(std::unique_ptr<Source> source, FrameQueue& queue, ReaderOptions options);
  /// Stops and joins. Stops the queue, too, if the thread may be waiting for room in it.
  ~Reader();

  /// Reads no further frame; noticed within about 20 ms, or when a full queue has room again.
  void stop();
  /// After stop(): closes the queue if the source hasn't returned for `teardown`.
  void leave_hung();
  void join();
  /// Empty unless the stream broke; valid after join().
  const std::string& error() const;
  /// Whether the source hung in a read or its destructor and was abandoned; valid after join().
  bool hung() const;
  /// Frames per second: those that the source's latest connection names; if it names none, or its
  /// stamps have long shown others, by the stamps; 0 until about 9 frames have come.
  double fps() const;
  /// Whether fps() is by the stamps.
  bool fps_by_stamps() const;

 private:
  struct Work;

  const std::shared_ptr<Work> work_;  // shared with the thread
  std::mutex mutex_;                  // guards the members below
  std::future<void> over_;
  std::thread thread_;
};

}  // namespace millrace::io
