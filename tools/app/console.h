// What users see of a run while it learns, and what they ask of it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "tools/app/outputs/live_view.h"

namespace millrace::app {

struct RunParts;

/// Used by the main thread.
class Console {
 public:
  /// Of a run whose other parts stand; it outlives this. Throws std::runtime_error if the page
  /// can't be served.
  explicit Console(RunParts& run);

  bool paused() const { return page && page->paused(); }
  /// Passes `line` on, unless it is empty.
  void tell(const std::string& line) {
    if (on_event && !line.empty()) on_event(line);
  }
  /// Tells what has happened since the last call, and does what viewers ask for.
  void look();
  /// One line on how the run is doing. Frames per second are since the call before.
  std::string status();
  /// Reads the config again. Applies optimizer.lr, monitor.fps, checkpoint.every and the files
  /// written at the end (but not the video); other keys need a restart. Returns a line that says
  /// what changed and what needs a restart, or what is wrong; then nothing has changed.
  std::string reload();

  std::function<void(const std::string& line)> on_event;
  std::function<void()> on_tick;
  std::unique_ptr<LiveView> page;  ///< null: nobody watches
  Config config;                   ///< as reload() left it

 private:
  void tell_roll_backs();
  void tell_source();
  void tell_novelty();
  void tell_dead_units();
  /// Tells when an output can't be written, and when it can again.
  void tell_failure(const std::string& output, const std::string& now, std::string& before);
  /// tell() for what may come in floods.
  void complain(const std::string& line);
  void hear_labels();  ///< from standard input; never waits
  bool apply(const std::string& key, const Config& fresh);

  RunParts& run_;
  // What was told already.
  bool connected_ = true, in_event_ = false, dead_told_ = false;
  std::int64_t roll_backs_ = 0, events_ = 0;
  std::string alert_error_, checkpoint_error_, log_error_;
  // The status line before.
  std::chrono::steady_clock::time_point shown_at_ = std::chrono::steady_clock::now();
  std::int64_t shown_ = 0;  ///< frames
  bool stdin_open_;
  std::string stdin_line_;
  std::int64_t complaints_ = 0, untold_ = 0;
  std::chrono::steady_clock::time_point complained_at_;
};

}  // namespace millrace::app
