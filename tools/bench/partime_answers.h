// What the figures of `millrace bench partime` say: the paper's statements, and which camera a
// machine can learn from.
#pragma once

#include <nlohmann/json.hpp>

#include <optional>
#include <string>

namespace millrace::bench {

/// A figure of one arm, of "predicted" or "measured"; none where there is no such arm.
std::optional<double> partime_figure(const nlohmann::ordered_json& results,
                                     const std::string& network, std::int64_t size, int stages,
                                     const std::string& capture, const std::string& kind,
                                     const std::string& figure);

/// Sizes, or stages, that the results have; ascending.
std::vector<std::int64_t> partime_values(const nlohmann::ordered_json& results,
                                         const std::string& key);

/// [{"statement", "answer": "yes" | "no" | "not asked", "figure"}], in the order of the slides.
nlohmann::ordered_json partime_statements(const nlohmann::ordered_json& results);

/// [{"network", "stages", "kind": "measured" | "predicted", "fps", "size"}]: the largest square
/// that a step learns from within 1/fps, interpolated between the sizes that were run and limited
/// to the largest; 0: not even the smallest.
nlohmann::ordered_json partime_cameras(const nlohmann::ordered_json& results);

}  // namespace millrace::bench
