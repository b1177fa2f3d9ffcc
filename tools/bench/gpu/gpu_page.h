// A page of what gpu_bench measured.
#pragma once

#include <string>  // Markdown

#include <nlohmann/json.hpp>  // results

namespace millrace::bench {

/// Markdown of gpu_results(), or of a part of them.
std::string gpu_page(const nlohmann::ordered_json& results);

}  // namespace millrace::bench
