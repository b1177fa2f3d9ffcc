// What a trainer tells those of other ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/pipeline/exchange.h"
#include "stages/parameters.h"

namespace millrace::engine {

/// To all other ranks: go on at `cut`, with `weights`, after so many roll-backs.
void tell_of_cut(Exchange& exchange, const std::vector<int>& cut, const stages::StateDict& weights,
                 std::int64_t roll_backs);

}  // namespace millrace::engine
