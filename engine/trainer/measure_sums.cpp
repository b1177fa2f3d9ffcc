// measure_sums(): what it takes ranks that share modules to add up.
#include <limits>

#include "engine/pipeline/pinning.h"
#include "engine/trainer/profiler.h"
#include "engine/trainer/repeats.h"
#include "engine/trainer/sum_group.h"

namespace millrace::engine {
namespace {

/// Milliseconds of a sum. Every one is a meeting, so that all begin the next at once. The quickest
/// of some batches tells: a rank whose core somebody else has is waited for, which adds
/// milliseconds.
plan::Measured sum_ms(SumGroup& group, std::vector<float>& numbers, int place) {
  constexpr int kBatches = 20, kSums = 8;
  plan::Measured quickest{.median = std::numeric_limits<double>::infinity()};
  for (int batch = 0; batch < kBatches; ++batch) {
    std::vector<double> all;
    for (int sum = 0; sum < kSums; ++sum) {
      const double before = now_ms();
      group.add_up(numbers, place);
      all.push_back(now_ms() - before);
    }
    const plan::Measured ms = measured(all);
    if (ms.median < quickest.median) quickest = ms;
  }
  return quickest;
}

}  // namespace

plan::HandOff measure_sums(Exchange& exchange) {
  plan::HandOff result{.between = plan::kSums, .points = {}, .spread = {}};
  on_core(exchange.rank(), [&] {
    SumGroup group(exchange);
    int place = 0;
    for (const std::size_t bytes : {4u, 1u << 12, 1u << 15, 1u << 17, 1u << 19, 1u << 21}) {
      std::vector<float> numbers(bytes / sizeof(float), 0.0f);
      const plan::Measured ms = sum_ms(group, numbers, place++);
      result.points.emplace_back(double(bytes) * (exchange.ranks() - 1), ms.median);
      result.spread.push_back(ms.spread);
    }
  });
  return result;
}

}  // namespace millrace::engine
