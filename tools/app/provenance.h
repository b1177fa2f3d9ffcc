// Versions and machine, for every report.
#pragma once

#include <nlohmann/json.hpp>

namespace millrace::app {

/// {"version", "compiler", "libtorch", "cuda", "cpu", "gpu", "threads"}. `threads`: number of
/// worker threads.
nlohmann::ordered_json provenance(int threads);

}  // namespace millrace::app
