// The thread that reads a source, paces it and feeds the frame queue.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "io/queue/frame_queue.h"
#include "io/source/source.h"
#include "io/source/timeline.h"

namespace millrace::io {

struct ReaderOptions {
  bool paced = false;      ///< sleep until a frame is due by its pts (files only)
  bool loop = false;       ///< start again at the end
  std::int64_t limit = 0;  ///< stop after this many good frames; 0: no limit
  int ahead = 0;           ///< only frames after the first so many of a segment count to the limit
  double fps = 0.0;        ///< rate if neither pts nor the source give one; 0: 25
  std::chrono::milliseconds teardown{5000};  ///< a source that takes longer to destroy is left
};

/// Reads until the source ends or breaks, the limit is reached or stop() is called. Then closes the
/// queue and destroys the source, for which it waits at most `teardown`. Keeps pts monotonic over
/// loops. Thread-safe.
class Reader {
 public:
  /// Starts the thread, which owns `source`. `queue` outlives this object.
  Reader(std::unique_ptr<Source> source, FrameQueue& queue, ReaderOptions options);
  /// Stops and joins. If the thread is still reading, the queue is stopped, too, since the thread
  /// may be waiting for room in it.
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  /// No further frame is read; noticed within about 20 ms, or when a full queue has room again.
  void stop();
  void join();
  /// Empty unless the stream broke; valid after join().
  const std::string& error() const;
  /// The source hung in its destructor and was left behind; valid after join().
  bool hung() const { return hung_; }
  /// Frames a second by the source, or else by the stamps; 0 until about 9 frames have come.
  double fps() const { return fps_.load(std::memory_order_relaxed); }

 private:
  void run();
  void read_all();
  bool read_pass();
  bool deliver(Frame& frame);
  void stamp(Frame& frame);
  bool wait_until_due(Frame& frame);
  bool limit_reached() const { return options_.limit > 0 && counted_ >= options_.limit; }

  // The thread's alone.
  std::unique_ptr<Source> source_;
  std::shared_ptr<const StreamHealth> health_;  // outlives the source
  FrameQueue& queue_;
  const ReaderOptions options_;
  const bool live_;    // frames come at their own time
  Timeline timeline_;  // over loops, missing stamps and jumps
  Clock::time_point last_captured_;
  Clock::time_point start_;  // when pts 0 fell due
  std::int64_t delivered_ = 0;
  std::int64_t breaks_ = 0;      // before the frame at hand
  std::int64_t in_segment_ = 0;  // delivered of the segment at hand
  std::int64_t counted_ = 0;     // towards the limit
  std::int64_t last_segment_ = -1;
  std::string error_;
  bool hung_ = false;

  // Shared.
  std::atomic<double> fps_{0.0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> finished_{false};
  std::mutex join_mutex_;
  std::thread thread_;  // last: starts when all else stands
};

}  // namespace millrace::io
