#pragma once

#include <c10/core/AutogradState.h>
#include <c10/util/ScopeExit.h>

namespace millrace::capture {

/// While the result lives, backward runs on this thread instead of the device's autograd thread.
[[nodiscard]] inline auto on_one_thread() {
  c10::AutogradState& state = c10::AutogradState::get_tls_state();
  const bool before = state.get_multithreading_enabled();
  state.set_multithreading_enabled(false);
  return c10::make_scope_exit([&state, before] { state.set_multithreading_enabled(before); });
}

}  // namespace millrace::capture
