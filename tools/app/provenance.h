#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace millrace::app {

/// {"version", "compiler", "libtorch", "cuda", "cpu", "gpu", "threads"}; `threads`: worker threads.
nlohmann::ordered_json provenance(int threads);
std::string host_name();
/// This process's VmRSS (now) or VmHWM (at most), as Linux counts them. 0: unknown.
std::int64_t resident_bytes(const std::string& which);

}  // namespace millrace::app
