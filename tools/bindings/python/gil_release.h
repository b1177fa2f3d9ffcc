// Python's lock, released while the engine works.
#pragma once

#include <Python.h>
#include <unistd.h>

#include <atomic>

namespace millrace::python {

/// Other Python threads run while it lives. Python ends its daemon threads where they ask for the
/// lock again, by unwinding, which ends the process where a destructor is on the way. From
/// leave_at_exit() on, such threads rest here instead, until the process is gone.
class GilRelease {
 public:
  GilRelease() : thread_(PyEval_SaveThread()) {
    if (!in_main_thread()) others_.store(true, std::memory_order_relaxed);
  }
  ~GilRelease() noexcept(false) {
    while (ending_.load() && !in_main_thread()) pause();
    PyEval_RestoreThread(thread_);
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

  /// Called by the main thread when Python ends, with the lock: gives daemon threads time to come
  /// here.
  static void leave_at_exit() {
    ending_.store(true);
    if (!others_.load(std::memory_order_relaxed)) return;
    const GilRelease they_run;
    usleep(200'000);
  }

 private:
  static bool in_main_thread() { return gettid() == getpid(); }

  static inline std::atomic<bool> ending_{false}, others_{false};
  PyThreadState* const thread_;
};

}  // namespace millrace::python
