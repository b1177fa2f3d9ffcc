// Where a number comes from: the versions and the machine beside every report.
#pragma once

#include <nlohmann/json.hpp>  // report

namespace millrace::app {

/// {"version", "compiler", "libtorch", "cuda", "cpu", "gpu", "threads"}: `threads` is the number of
/// worker threads.
nlohmann::ordered_json provenance(int threads);

/// "AMD EPYC 9474F", as the system names it.
std::string cpu_name();

}  // namespace millrace::app
