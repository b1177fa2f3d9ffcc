// Versions and machine, for every report.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace millrace::app {

/// {"version", "compiler", "libtorch", "cuda", "cpu", "gpu", "threads"}. `threads`: number of
/// worker threads.
nlohmann::ordered_json provenance(int threads);
/// This machine's name.
std::string host_name();

}  // namespace millrace::app
