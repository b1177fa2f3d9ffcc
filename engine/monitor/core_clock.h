// Whether the cores run slower than they could: a hot or underpowered board does.
#pragma once

#include <filesystem>
#include <string>

namespace millrace::engine {

/// "cores run at 1500 of 2400 MHz, 84 C" if even the fastest one runs at less than 90 % of its own
/// most, else, or where Linux does not tell, "". Idle cores rest at low clocks: ask while some are
/// busy. Reentrant. \param sys Linux's /sys.
std::string slow_clock(const std::filesystem::path& sys = "/sys");

}  // namespace millrace::engine
