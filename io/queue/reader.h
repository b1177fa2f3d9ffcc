// The thread that reads a source, paces it and feeds the frame queue.
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "io/queue/frame_queue.h"
#include "io/source/source.h"

namespace millrace::io {

struct ReaderOptions {
  bool paced = false;      ///< sleep until a frame is due by its pts (files only)
  bool loop = false;       ///< start again at the end
  std::int64_t limit = 0;  ///< stop after this many good frames; 0: no limit
  int ahead = 0;           ///< only frames after the first so many of a segment count to the limit
  double fps = 0.0;        ///< rate if neither pts nor the source give one; 0: 25
  std::chrono::milliseconds teardown{5000};  ///< a source that takes longer to stop is left
};

/// Reads until the source ends or breaks, the limit is reached or stop() is called. Then closes the
/// queue and destroys the source, for which it waits at most `teardown`. A source that hangs is
/// left behind with the thread, which then touches nothing of the caller's. Keeps pts monotonic
/// over loops. Thread-safe.
class Reader {
 public:
  /// Starts the thread, which owns `source`. `queue` outlives this object.
  Reader(std::unique_ptr<Source> source, FrameQueue& queue, ReaderOptions options);
  /// Stops and joins. If the thread is still reading, the queue is stopped, too, since the thread
  /// may be waiting for room in it.
  ~Reader();

  /// No further frame is read; noticed within about 20 ms, or when a full queue has room again.
  void stop();
  /// After stop(): closes the queue if the source has not come back for `teardown`.
  void leave_hung();
  void join();
  /// Empty unless the stream broke; valid after join().
  const std::string& error() const;
  /// The source hung in a read or in its destructor and was left behind; valid after join().
  bool hung() const;
  /// Frames a second by the source, or else by the stamps; 0 until about 9 frames have come.
  double fps() const;

 private:
  struct Work;

  const std::shared_ptr<Work> work_;  // the thread's, too
  std::mutex mutex_;                  // of the members below
  std::future<void> over_;
  std::thread thread_;
};

}  // namespace millrace::io
