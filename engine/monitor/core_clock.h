#pragma once

#include <filesystem>
#include <string>

namespace millrace::engine {

/// Detects cores that run below their maximum, as on a hot or underpowered board: "cores run at
/// 1500 of 2400 MHz, 84 C" if even the core nearest its maximum runs below 90 % of it, else, or
/// where Linux does not tell, "". Idle cores rest at low clocks: call it while some are busy.
/// Reentrant. \param sys Linux's /sys.
std::string slow_clock(const std::filesystem::path& sys = "/sys");

}  // namespace millrace::engine
