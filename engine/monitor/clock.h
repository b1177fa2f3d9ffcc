// The clock of every time that the engine takes: monotonic, so that no set clock disturbs it.
#pragma once

#include <chrono>

namespace millrace::engine {

using Clock = std::chrono::steady_clock;

}  // namespace millrace::engine
