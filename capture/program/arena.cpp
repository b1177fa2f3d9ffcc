#include "capture/program/arena.h"

#include <algorithm>
#include <numeric>

namespace millrace::program {
ArenaPlan plan_arena(const std::vector<Lifetime>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return values[a].bytes > values[b].bytes; });
  ArenaPlan plan{std::vector<std::size_t>(values.size(), 0), 0};
  std::vector<std::size_t> placed;
  for (const std::size_t value : order) {
    const Lifetime& mine = values[value];
    std::vector<std::size_t> meets;  // values alive at the same time, by offset
    for (const std::size_t other : placed) {
      if (values[other].first <= mine.last && mine.first <= values[other].last)
        meets.push_back(other);
    }
    std::sort(meets.begin(), meets.end(),
              [&](std::size_t a, std::size_t b) { return plan.offsets[a] < plan.offsets[b]; });
    std::size_t offset = 0;
    for (const std::size_t other : meets) {
      if (offset + mine.bytes <= plan.offsets[other]) break;
      offset = std::max(offset, capture::aligned(plan.offsets[other] + values[other].bytes));
    }
    plan.offsets[value] = offset;
    plan.bytes = std::max(plan.bytes, offset + capture::aligned(mine.bytes));
    placed.push_back(value);
  }
  return plan;
}

}  // namespace millrace::program
