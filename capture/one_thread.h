// Backward on the calling thread.
#pragma once

#include <c10/core/AutogradState.h>

namespace millrace::capture {

/// While it lives, a backward's operators are called by this thread, not by one of the device's.
class OneThread {
 public:
  OneThread() { state().set_multithreading_enabled(false); }
  ~OneThread() { state().set_multithreading_enabled(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  const bool before_ = state().get_multithreading_enabled();
};

}  // namespace millrace::capture
