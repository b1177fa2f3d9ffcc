#include "tools/app/outputs/frame_log.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "io/files/whole_file.h"

namespace millrace::app {
namespace {

using namespace std::chrono;

constexpr seconds kPatience{5};  // for a slow reader, at the end

bool ends_amid_a_line(const std::string& path) {
  const io::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status {};
  char last = '\n';
  return file && fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
         pread(file.get(), &last, 1, status.st_size - 1) == 1 && last != '\n';
}

/// Throws std::runtime_error. Never blocks, even on a pipe.
io::Descriptor open_to_append(const std::string& path) {
  std::error_code ignored;  // open() reports it
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  io::Descriptor file(
      open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666));
  if (!file) throw std::runtime_error(path + ": " + std::strerror(errno));
  return file;
}

/// Whether PIPE_BUF bytes can be written without blocking, within `patience`.
bool takes_more(int file, milliseconds patience) {
  pollfd out{.fd = file, .events = POLLOUT, .revents = 0};
  return poll(&out, 1, int(patience.count())) > 0;
}

}  // namespace

FrameLog::FrameLog(const std::string& path, std::int64_t every, LogSubject subject)
    : path_(path), every_(every), subject_(subject) {
  if (path != "-" && ends_amid_a_line(path)) text_ = "\n";
  open();
}

void FrameLog::open() {
  const int standard = io::standard_stream(path_);
  file_ = standard >= 0 ? io::Descriptor(dup(standard)) : open_to_append(path_);
}

void FrameLog::note(const engine::SampleInfo& info, float loss) {
  const Note note{.sample = before_run_ + info.index,
                  .frame = info.frame,
                  .time = system_clock::now(),
                  .latency = info.predicted - info.captured,
                  .loss = loss,
                  .recent = float(subject_.network.recent()),
                  .baseline = float(subject_.baseline.last()),
                  .deviation = float(subject_.novelty.deviation()),
                  .unexpected = subject_.novelty.in_event(),
                  .answer = subject_.answers ? subject_.answers->now() : Answer()};
  if (!notes_.try_enqueue(note)) missed_.fetch_add(1, std::memory_order_relaxed);
}

void FrameLog::resumed(std::int64_t frames) {
  before_run_ = frames;
  const double now = duration<double>(system_clock::now().time_since_epoch()).count();
  text_ +=
      nlohmann::ordered_json{{"resumed", true}, {"frame", frames}, {"time", now}}.dump() + "\n";
}

/// Whether the file was deleted or moved away, as by log rotation.
bool FrameLog::moved() const {
  struct stat here {
  }, there{};
  if (path_ == "-" || fstat(file_.get(), &here) != 0 || !S_ISREG(here.st_mode)) return false;
  if (stat(path_.c_str(), &there) != 0) return errno == ENOENT;
  return there.st_ino != here.st_ino || there.st_dev != here.st_dev;
}

void FrameLog::write(milliseconds patience) {
  if (file_ && done_ == 0 && moved()) file_.close();
  if (!file_) {
    try {
      open();
    } catch (const std::runtime_error& refused) {
      set_error(refused.what());
      return;
    }
  }
  Note note;
  if (!flush(patience) || !notes_.try_dequeue(note)) return;
  const engine::Reading reading = subject_.monitor.read();
  do {
    text_ = line(note, reading);
    before_ = note;
  } while (flush(patience) && notes_.try_dequeue(note));
}

void FrameLog::finish() {
  write(kPatience);
  if (!text_.empty() && error_.empty()) set_error(where() + ": is not being read");
}

std::string FrameLog::line(const Note& note, const engine::Reading& r) {
  const double passed = duration<double>(note.time - before_.time).count();
  const bool first = before_.time == system_clock::time_point{};
  nlohmann::ordered_json fps;  // null: unknown
  if (!first && passed > 0) fps = double(note.sample - before_.sample) / passed;
  nlohmann::ordered_json line = {{"frame", note.sample},
                                 {"source_frame", note.frame},
                                 {"time", duration<double>(note.time.time_since_epoch()).count()},
                                 {"loss", note.loss},
                                 {"loss_recent", note.recent},
                                 {"mean_frame_loss", note.baseline},
                                 {"deviation", note.deviation},
                                 {"unexpected", note.unexpected},
                                 {"fps", fps},
                                 {"latency_ms", duration<double, std::milli>(note.latency).count()},
                                 {"T_over_N_ms", r.T_over_N},
                                 {"stage_ms", r.stage},
                                 {"handoff_ms", r.handoff},
                                 {"gradient_age", r.gradient_age},
                                 {"correction", subject_.correction},
                                 {"dropped", subject_.queue.dropped()},
                                 {"missed", missed_.load(std::memory_order_relaxed)}};
  if (subject_.answers) line["answer"] = subject_.answers->json(note.answer);
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

bool FrameLog::flush(milliseconds patience) {
  while (done_ < text_.size()) {
    if (!takes_more(file_.get(), patience)) return false;
    const std::size_t piece = std::min<std::size_t>(text_.size() - done_, PIPE_BUF);
    const ssize_t wrote = ::write(file_.get(), text_.data() + done_, piece);
    if (wrote >= 0) {
      done_ += std::size_t(wrote);
    } else if (errno != EINTR) {
      if (errno != EAGAIN) fail(std::strerror(errno));
      return false;
    }
  }
  if (!text_.empty()) set_error("");
  text_.clear();
  done_ = 0;
  return true;
}

void FrameLog::fail(const std::string& cause) {
  set_error(where() + ": " + cause);
  // Part of a line may have been written: truncate it, or else repeat the whole line.
  struct stat there {};
  const bool taken_back = fstat(file_.get(), &there) == 0 && S_ISREG(there.st_mode) &&
                          ftruncate(file_.get(), there.st_size - off_t(done_)) == 0 &&
                          lseek(file_.get(), 0, SEEK_END) >= 0;
  if (done_ > 0 && !taken_back) text_ = "\n" + text_;
  done_ = 0;
  if (path_ != "-") file_.close();
}

}  // namespace millrace::app
