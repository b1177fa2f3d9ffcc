#pragma once

#include <string>
#include <vector>

#include "engine/plan/plan.h"

namespace millrace::engine::plan {

/// "3.1 GB", in powers of 1000.
std::string bytes_text(double bytes);

/// The first of make_plans(), its bottleneck, other methods, predictions, whether T/N < 1/F.
std::string plan_text(const Profile& profile, const Request& request,
                      const std::vector<Plan>& plans);

/// The `[pipeline]` table for `run`. Devices are named "KIND:0", "KIND:1", ... Copies become
/// replicas of every stage. TOML comments say what `run` cannot do.
std::string pipeline_toml(const Plan& plan, const Machine& machine, const std::string& kind);

}  // namespace millrace::engine::plan
