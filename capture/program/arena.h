#pragma once

#include <cstddef>
#include <vector>

#include "capture/arena.h"

namespace millrace::program {

using capture::Arena;

/// A value of `bytes`, alive from its first to its last use inclusive.
struct Lifetime {
  std::size_t first = 0, last = 0, bytes = 0;
};

/// Offsets, multiples of 64, that keep values alive at once apart; first fit, largest first.
struct ArenaPlan {
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
};
ArenaPlan plan_arena(const std::vector<Lifetime>& values);

}  // namespace millrace::program
