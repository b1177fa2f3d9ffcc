#include "engine/pipeline/rank_agreement.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace millrace::engine {
namespace {

void meet_copies(const Exchange::Copies& copies, Freight& freight, int stage, bool& learned,
                 Alarm& alarm) {
  constexpr std::size_t kVotes = 3;
  std::vector<float>& numbers = freight.gradient(stage, kVotes);
  float* const votes = numbers.data() + numbers.size() - kVotes;
  votes[0] = learned;
  votes[1] = alarm == Alarm::discard;
  votes[2] = alarm == Alarm::roll_back;
  copies.add_up(numbers, stage);
  learned = votes[0] == float(copies.count);
  alarm = votes[2] > 0 ? Alarm::roll_back : votes[1] > 0 ? Alarm::discard : Alarm::none;
  freight.set_gradient(stage, copies.count);
}

}  // namespace

void agree_on_update(const Exchange& exchange, Freight& freight, int stage, bool& learned,
                     Alarm& alarm) {
  if (exchange.copies.count > 1) meet_copies(exchange.copies, freight, stage, learned, alarm);
  if (!exchange.add_up_parts) return;
  const std::vector<float>& gradient = freight.gradient(stage, 0);
  float astray =
      std::ranges::all_of(gradient, [](float one) { return std::isfinite(one); }) ? 0 : 1;
  exchange.add_up_parts({&astray, 1}, stage);
  if (astray > 0) alarm = std::max(alarm, Alarm::discard);
}

}  // namespace millrace::engine
