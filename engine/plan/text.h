// Plans for people, and for `run`.
#pragma once

#include <string>
#include <vector>

#include "engine/plan/plan.h"

namespace millrace::engine::plan {

/// "3.10 GB": powers of 1000, as memory and links are sold.
std::string bytes_text(double bytes);

/// The plan, why it is so, what the next best would cost, what to expect, and whether the rule
/// T/N < 1/F holds. `most_others`: how many plans of other methods to list.
std::string plan_text(const Profile& profile, const Request& request, const Planned& planned,
                      std::size_t most_others = 8);

/// The `[pipeline]` table that `run` takes. `devices` are the machine's, by number; empty: they are
/// called "KIND:0", "KIND:1", ... for `kind`. Copies become replicas of every stage. What `run` has
/// no key for (tensor) is said in comments.
std::string pipeline_toml(const Plan& plan, const Machine& machine, const std::string& kind,
                          const std::vector<std::string>& devices = {});

}  // namespace millrace::engine::plan
