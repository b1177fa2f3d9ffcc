// Machines as a command line names them.
#pragma once

#include <string>

#include "engine/plan/profile.h"

namespace millrace::engine::plan {

/// "8": eight devices; "2x8": two servers of eight, as publications write it; any depth. `links`: a
/// GB/s[:ms] each, in the same order and separated by commas, as "3.125,30:0.01"; fewer than
/// levels: the last counts for what is within it; empty: what handing over took in `profile`, or
/// nothing. `overlap`: none | transfers | all. Throws std::invalid_argument with the text that is
/// wrong.
Machine parse_machine(const std::string& devices, const std::string& links,
                      const std::string& overlap, double memory_bytes, const Profile& profile);

}  // namespace millrace::engine::plan
