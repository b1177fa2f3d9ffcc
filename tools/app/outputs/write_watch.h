// Failures to write checkpoint and log during a run.
#pragma once

#include <functional>
#include <mutex>
#include <string>

namespace millrace::app {

/// Reports a failure once, and once more when it is over. look(): one thread; trouble(): any.
class WriteWatch {
 public:
  using Tell = std::function<void(const std::string& line)>;

  /// Why checkpoint and log can't be written now; "": they can.
  void look(const std::string& checkpoint, const std::string& log, const Tell& tell) {
    const std::lock_guard lock(mutex_);
    checkpoint_.look(checkpoint, tell);
    log_.look(log, tell);
  }
  /// One line; "": no failure.
  std::string trouble() const {
    const std::lock_guard lock(mutex_);
    return checkpoint_.error.empty() ? log_.line() : checkpoint_.line();
  }

 private:
  struct Output {
    const char* name;
    std::string error{};

    std::string line() const { return error.empty() ? "" : std::string(name) + ": " + error; }
    void look(const std::string& now, const Tell& tell) {
      const bool was = !error.empty();
      error = now;
      if (was == !now.empty()) return;
      tell(was ? std::string(name) + ": written again" : line());
    }
  };

  mutable std::mutex mutex_;
  Output checkpoint_{"checkpoint"}, log_{"log"};
};

}  // namespace millrace::app
