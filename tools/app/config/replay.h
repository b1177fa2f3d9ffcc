// Which samples are kept for replay.
#pragma once

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace millrace::app {

enum class ReplayKind : std::uint8_t {
  none,
  recent,     ///< the latest samples, any of them
  reservoir,  ///< a uniform choice of all samples so far (Vitter 1985, algorithm R), any of them
  /// The easiest makes room for the newest; a sample comes in proportion to its loss when it was
  /// last predicted (Schaul et al. 2016, proportional, alpha 1).
  hard,
};

/// By their names in a config.
inline const std::vector<std::string>& replay_names() {
  static const std::vector<std::string> names = {"none", "recent", "reservoir", "hard"};
  return names;
}

/// Throws std::out_of_range for another name.
inline ReplayKind replay_kind(const std::string& name) {
  const auto& names = replay_names();
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) throw std::out_of_range("replay kind " + name);
  return ReplayKind(found - names.begin());
}

}  // namespace millrace::app
