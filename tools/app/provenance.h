#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace millrace::app {

/// {"version", "compiler", "libtorch", "cuda", "cpu", "gpu", "threads"}; `threads`: worker threads.
nlohmann::ordered_json provenance(int threads);
std::string host_name();

}  // namespace millrace::app
