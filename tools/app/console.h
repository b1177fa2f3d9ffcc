#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "tools/app/outputs/checkpoints.h"
#include "tools/app/outputs/live_view.h"
#include "tools/app/outputs/records.h"
#include "tools/app/watches.h"

namespace millrace::app {

/// Status and events for users during learning, and their requests. Main thread only.
class Console {
 public:
  /// All arguments outlive this; `page` may be null.
  Console(Request& request, Intake& intake, Learner& learner, Records& records,
          Checkpoints& checkpoints, LiveView* page);

  void tell(const std::string& line) {
    if (on_event && !line.empty()) on_event(line);
  }
  /// Reports events since the last call and serves viewers' requests. `last`: learning has ended.
  void look(bool last);
  /// Reports the latest alert that failed, once.
  void tell_alerts();
  std::string status(bool verbose);
  /// Reads the config again and applies optimizer.lr, monitor.fps, checkpoint.every and the files
  /// written at the end (but not the video); other keys need a restart. Changes nothing if the
  /// config is wrong. Returns a line about it.
  std::string reload();

  std::function<void(const std::string& line)> on_event;
  std::function<void()> on_tick;
  Config config;  ///< as last reloaded

 private:
  struct Stream {
    std::string name, away;  ///< what it means that the stream is away
    std::shared_ptr<const io::StreamHealth> health;
    std::int64_t attempts = 0;  ///< to reopen it, by when it was last back
    bool connected = true;
  };

  void tell_source(Stream& stream);
  void tell_novelty();
  void tell_dead_units();
  /// Reports when an output can't be written, and when it can again.
  void tell_failure(const std::string& output, const std::string& now, std::string& before);
  /// tell(), rate-limited.
  void complain(const std::string& line);
  void hear_labels();
  /// Whether a running config can take over `key`.
  bool applies(const std::string& key) const;

  Request& request_;
  Intake& intake_;
  Learner& learner_;
  Records& records_;
  Checkpoints& checkpoints_;
  LiveView* const page_;
  // Values last reported.
  std::vector<Stream> streams_;  ///< the source first
  bool in_event_ = false, dead_told_ = false;
  std::int64_t events_ = 0;
  RollBackWatch roll_backs_;
  std::string alert_error_, checkpoint_error_, log_error_;
  // Time and frames, trained on and without a target, at the last status line.
  std::chrono::steady_clock::time_point shown_at_ = std::chrono::steady_clock::now();
  std::int64_t shown_ = 0, without_target_ = 0;
  bool stdin_open_;
  std::string stdin_line_;
  std::int64_t complaints_ = 0, untold_ = 0;
  std::chrono::steady_clock::time_point complained_at_;
};

}  // namespace millrace::app
