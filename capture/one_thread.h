#pragma once

#include <c10/core/AutogradState.h>

namespace millrace::capture {

/// While it lives, backward runs on this thread instead of the device's autograd thread.
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
