#include "tools/run/frame_log.h"

#include <fcntl.h>            // open
#include <sys/stat.h>         // what is at a path
#include <unistd.h>           // write
#include <nlohmann/json.hpp>  // lines

#include <cerrno>      // causes
#include <cstring>     // causes
#include <filesystem>  // folders
#include <stdexcept>   // failures

namespace millrace::tools {
namespace {

using namespace std::chrono;

/// Whether the file's last line was cut off, by a crash or a full disk.
bool ends_amid_a_line(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  char last = '\n';
  if (file >= 0 && fstat(file, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0 &&
      pread(file, &last, 1, status.st_size - 1) != 1) {
    last = '\n';
  }
  if (file >= 0) close(file);
  return last != '\n';
}

int open_to_append(const std::string& path) {
  std::error_code ignored;  // open() tells of it
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) throw std::runtime_error(path + ": " + std::strerror(errno));
  return file;
}

}  // namespace

FrameLog::FrameLog(const std::string& path, std::int64_t every, LogSubject subject)
    : path_(path), every_(every), subject_(subject) {
  const bool amid = path != "-" && ends_amid_a_line(path);
  file_ = path == "-" ? dup(STDOUT_FILENO) : open_to_append(path);
  if (amid) append("\n");
}

FrameLog::~FrameLog() {
  close(file_);
}

void FrameLog::note(const engine::SampleInfo& info, float loss) {
  const Note note{.sample = before_run_ + info.sample,
                  .frame = info.frame,
                  .time = system_clock::now(),
                  .latency = engine::Clock::now() - info.captured,
                  .loss = loss,
                  .recent = float(subject_.network.recent()),
                  .baseline = float(subject_.baseline.last()),
                  .deviation = float(subject_.novelty.deviation()),
                  .unexpected = subject_.novelty.in_event()};
  if (!notes_.try_enqueue(note)) missed_.fetch_add(1, std::memory_order_relaxed);
}

void FrameLog::resumed(std::int64_t frames) {
  before_run_ = frames;
  const double now = duration<double>(system_clock::now().time_since_epoch()).count();
  append(nlohmann::ordered_json{{"resumed", true}, {"frame", frames}, {"time", now}}.dump() + "\n");
}

void FrameLog::write() {
  Note note;
  if (!notes_.try_dequeue(note)) return;
  const engine::Reading reading = subject_.monitor.read();
  do {
    append(line(note, reading));
    before_ = note;
  } while (notes_.try_dequeue(note));
}

std::string FrameLog::line(const Note& note, const engine::Reading& r) {
  const double passed = duration<double>(note.time - before_.time).count();
  const bool first = before_.time == system_clock::time_point{};
  nlohmann::ordered_json fps;  // null: not to be told
  if (!first && passed > 0) fps = double(note.sample - before_.sample) / passed;
  const nlohmann::ordered_json line = {
      {"frame", note.sample},
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
      {"dropped", subject_.queue.dropped()},
      {"missed", missed_.load(std::memory_order_relaxed)}};
  return line.dump() + "\n";
}

void FrameLog::append(const std::string& text) {
  for (std::size_t done = 0; done < text.size() && error_.empty();) {
    const ssize_t wrote = ::write(file_, text.data() + done, text.size() - done);
    if (wrote >= 0) {
      done += std::size_t(wrote);
    } else if (errno != EINTR) {
      error_ = (path_ == "-" ? "stdout" : path_) + ": " + std::strerror(errno);
    }
  }
}

}  // namespace millrace::tools
