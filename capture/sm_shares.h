// How the SMs of a device are shared out among its stages. Needs neither LibTorch nor CUDA.
#pragma once

#include <vector>  // work, shares

namespace millrace::capture {

/// How many of `groups` equal groups of SMs each stage gets: at least one each, all of them given
/// away, and the largest work / groups of a stage as small as can be. `work`: one a stage, >= 0,
/// any unit. Throws std::invalid_argument for no stages or fewer groups than stages.
std::vector<int> sm_shares(int groups, const std::vector<double>& work);

}  // namespace millrace::capture
