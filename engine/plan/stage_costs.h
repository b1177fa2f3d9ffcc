// A profile's modules added up to the stages of a cut: what simulate plays.
#pragma once

#include <vector>

#include "engine/plan/costs.h"
#include "engine/plan/profile.h"

namespace millrace::engine::plan {

/// `cut`: the modules where stages 1.. begin, ascending. The first module has no input gradient.
/// Throws std::invalid_argument unless every stage has at least one of the profile's modules.
std::vector<StageCosts> stage_costs(const Profile& profile, const std::vector<int>& cut);

/// What each of `tensor` devices that share modules spends and holds. A machine that does not say
/// how its ranks add up has them do so over the worst link between such devices.
Profile shared_by(Profile profile, int tensor, const Machine& machine);

}  // namespace millrace::engine::plan
