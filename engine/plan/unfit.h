// Why no plan fits, in words.
#pragma once

#include <string>
#include <vector>

#include "engine/plan/methods.h"

namespace millrace::engine::plan {

/// The least memory a device with which some cut fits, and that cut; without stages if none fits at
/// any memory.
struct LeastMemory {
  double bytes = 0;
  std::vector<Stage> stages;
};
LeastMemory least_memory(const Profile& profile, const Machine& machine,
                         const Candidate& candidate);

/// One line that names what binds: too many stages, or memory, with the least that would do, of
/// which method and stage.
std::string why_nothing_fits(const Profile& profile, const Request& request,
                             const std::vector<Candidate>& tried);

}  // namespace millrace::engine::plan
