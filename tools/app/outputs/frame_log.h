// One JSON object a line about every N-th frame, while the run goes on.
#pragma once

#include <readerwriterqueue/readerwritercircularbuffer.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "engine/monitor/loss_history.h"
#include "engine/monitor/monitor.h"
#include "engine/pipeline/feed.h"
#include "io/queue/frame_queue.h"
#include "tools/app/outputs/novelty.h"

namespace millrace::app {

/// What a line tells of. The histories have seen a prediction before the log does.
struct LogSubject {
  const engine::Monitor& monitor;
  const io::FrameQueue& queue;
  const engine::LossHistory& network;
  const engine::LossHistory& baseline;
  const Novelty& novelty;
  std::string correction;  ///< of old gradients
};

/// Appends to a file, or to stdout. This is no output written whole: it grows, and each line is
/// there for whoever follows it as soon as it is written. predicted() only notes numbers, for
/// write() to make lines of; should write() fall kRoom frames behind, predicted() leaves frames out
/// rather than wait, and every line says how many so far. write() never waits, neither for a disk
/// that is full nor for a pipe: until it can go on, notes are kept. predicted(): the last stage's
/// worker. The rest: one other thread.
class FrameLog final : public engine::Observer {
 public:
  static constexpr std::size_t kRoom = 65536;

  /// `path`: created with its folders if missing; "-": stdout. `subject` outlives this. Throws
  /// std::runtime_error "PATH: cause".
  FrameLog(const std::string& path, std::int64_t every, LogSubject subject);
  ~FrameLog() override;
  FrameLog(const FrameLog&) = delete;
  FrameLog& operator=(const FrameLog&) = delete;

  void predicted(engine::Sample& sample, float loss) override {
    if (sample.info.index % every_ == 0) note(sample.info, loss);
  }
  /// A line that says that what follows goes on from a checkpoint after `frames` frames, which
  /// count as the first ones. Before the run.
  void resumed(std::int64_t frames);

  /// Writes what was noted since the last call, as far as it is taken: a pipe's reader is waited
  /// for `patience` at most. What can't be written is tried again with the next call.
  void write(std::chrono::milliseconds patience = {});
  /// Writes the rest, to a reader that takes something every few seconds.
  void finish();
  /// "PATH: cause" while nothing can be written; else "".
  const std::string& error() const { return error_; }

 private:
  struct Note {
    std::int64_t sample = 0, frame = 0;
    std::chrono::system_clock::time_point time;
    std::chrono::nanoseconds latency{};
    float loss = 0, recent = 0, baseline = 0, deviation = 0;
    bool unexpected = false;
  };

  void note(const engine::SampleInfo& info, float loss);
  std::string line(const Note& note, const engine::Reading& reading);
  void open();
  bool reopen();  ///< after a failure; whether it is there again
  /// Whether all of text_ is written.
  bool flush(std::chrono::milliseconds patience);
  void fail(const std::string& cause);
  std::string where() const { return path_ == "-" ? "stdout" : path_; }

  const std::string path_;
  const std::int64_t every_;
  const LogSubject subject_;
  std::int64_t before_run_ = 0;  ///< frames that a checkpoint had learned from
  int file_ = -1;
  moodycamel::BlockingReaderWriterCircularBuffer<Note> notes_{kRoom};
  std::atomic<std::int64_t> missed_{0};
  Note before_;       ///< of the line before; its time is 0 while there is none
  std::string text_;  ///< a line that is not all written
  std::size_t done_ = 0;
  std::string error_;
};

}  // namespace millrace::app
