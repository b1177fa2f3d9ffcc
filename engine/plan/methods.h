// The methods a request leaves open, listed.
#pragma once

#include <vector>

#include "engine/plan/plan.h"

namespace millrace::engine::plan {

struct Candidate {
  Method method;
  Freedom freedom;
  bool operator==(const Candidate&) const = default;
};

/// Every method that the request allows and that its schedule can have. Throws
/// std::invalid_argument for an unknown schedule, or if there is none, with the reason.
std::vector<Candidate> candidates(const Profile& profile, const Request& request);

/// Whether so many stages, one place each, go with the method: 2bw needs as many samples a
/// minibatch; interleaved's workers must divide them.
bool suits(const Method& method, int stages);

}  // namespace millrace::engine::plan
