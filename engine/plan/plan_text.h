#pragma once

#include <string>

#include "engine/plan/plan.h"

namespace millrace::engine::plan {

/// "3.1 GB", in powers of 1000.
std::string bytes_text(double bytes);

/// The plan, its bottleneck, the next best cut, other methods, what to expect, whether T/N < 1/F.
std::string plan_text(const Profile& profile, const Request& request, const Planned& planned);

/// The `[pipeline]` table for `run`. Devices are called "KIND:0", "KIND:1", ... for `kind`. Copies
/// become replicas of every stage. Comments say what `run` cannot do.
std::string pipeline_toml(const Plan& plan, const Machine& machine, const std::string& kind);

}  // namespace millrace::engine::plan
