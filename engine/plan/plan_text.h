// Plans as text for people, and as a config for `run`.
#pragma once

#include <string>

#include "engine/plan/plan.h"

namespace millrace::engine::plan {

/// "3.1 GB": powers of 1000, as memory and links are sold.
std::string bytes_text(double bytes);

/// The plan, its bottleneck, the next best cut, plans of other methods, what to expect, and whether
/// the rule T/N < 1/F holds.
std::string plan_text(const Profile& profile, const Request& request, const Planned& planned);

/// The `[pipeline]` table that `run` takes. Devices are called "KIND:0", "KIND:1", ... for `kind`.
/// Copies become replicas of every stage. Comments say what `run` cannot do.
std::string pipeline_toml(const Plan& plan, const Machine& machine, const std::string& kind);

}  // namespace millrace::engine::plan
