#pragma once

#include <readerwriterqueue/readerwritercircularbuffer.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

#include "engine/monitor/loss_history.h"
#include "engine/monitor/monitor.h"
#include "engine/pipeline/feed.h"
#include "io/files/descriptor.h"
#include "io/queue/frame_queue.h"
#include "tools/app/classes/answers.h"
#include "tools/app/events/novelty.h"

namespace millrace::app {

/// Sources of a line's figures. The histories are updated before the log.
struct LogSubject {
  const engine::Monitor& monitor;
  const io::FrameQueue& queue;
  const engine::LossHistory& network;
  const engine::LossHistory& baseline;
  const Novelty& novelty;
  std::string correction;
  const Answers* answers = nullptr;  ///< null: the task has no classes of frames
};

/// Logs every N-th frame as one JSON object per line, appended to a file or stdout during the run.
/// predicted() only records numbers; write() turns them into lines. If write() falls kRoom frames
/// behind, predicted() drops frames, and each line gives their number so far. write() never blocks
/// on a full disk or pipe; it holds the records until it can continue. A file that is deleted or
/// moved is created again. The last stage's worker calls predicted(), one other thread the rest.
class FrameLog final : public engine::Observer {
 public:
  static constexpr std::size_t kRoom = 65536;

  /// `path`: created with its folders if missing; "-": stdout. `subject` outlives this. Throws
  /// std::runtime_error "PATH: cause".
  FrameLog(const std::string& path, std::int64_t every, LogSubject subject);

  void predicted(engine::Sample& sample, float loss) override {
    if (sample.info.index % every_ == 0) note(sample.info, loss);
  }
  /// Call before the run: records that it continues a checkpoint; numbers continue after `frames`.
  void resumed(std::int64_t frames);

  /// Writes the records, waiting at most `patience` for a pipe's reader. Retries in the next call.
  void write(std::chrono::milliseconds patience = {});
  /// Writes the rest, while the reader takes some of it every few seconds.
  void finish();
  /// "PATH: cause" while writing fails; otherwise "". Any thread.
  std::string error() const {
    const std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  struct Note {
    std::int64_t sample = 0, frame = 0;
    std::chrono::system_clock::time_point time;
    std::chrono::nanoseconds latency{};
    float loss = 0, recent = 0, baseline = 0, deviation = 0;
    bool unexpected = false;
    Answer answer;
  };

  void note(const engine::SampleInfo& info, float loss);
  std::string line(const Note& note, const engine::Reading& reading);
  void open();
  bool moved() const;
  bool flush(std::chrono::milliseconds patience);
  void fail(const std::string& cause);
  void set_error(const std::string& error) {
    const std::lock_guard lock(mutex_);
    error_ = error;
  }
  std::string where() const { return path_ == "-" ? "stdout" : path_; }

  const std::string path_;
  const std::int64_t every_;
  const LogSubject subject_;
  std::int64_t before_run_ = 0;  ///< frames before the checkpoint
  io::Descriptor file_;
  moodycamel::BlockingReaderWriterCircularBuffer<Note> notes_{kRoom};
  std::atomic<std::int64_t> missed_{0};
  Note before_;  ///< the last line; time 0: none
  std::string text_;
  std::size_t done_ = 0;
  mutable std::mutex mutex_;  ///< guards error_, set by write() only
  std::string error_;
};

}  // namespace millrace::app
