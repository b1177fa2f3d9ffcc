#include "io/source/timeline.h"

#include <algorithm>
#include <span>

#include "io/source/source_kinds.h"  // rate_or_default

namespace millrace::io {
namespace {

using std::chrono::nanoseconds;

// A step of up to so many periods is no jump: some streams have very few frames a second.
constexpr int kPatience = 10;
// Steps that determine an unknown rate.
constexpr std::size_t kEnough = 8;
constexpr nanoseconds kLeastStep = std::chrono::microseconds(1);

nanoseconds default_period() {
  return nanoseconds(std::int64_t(1e9 / rate_or_default(0.0)));
}

// The mean of the steps near the median, so that gaps do not count and jitter cancels out.
nanoseconds usual_step(std::span<const nanoseconds> steps) {
  std::array<nanoseconds, Timeline::kWindow> sorted;
  const auto end = std::copy(steps.begin(), steps.end(), sorted.begin());
  const auto middle = sorted.begin() + steps.size() / 2;
  std::nth_element(sorted.begin(), middle, end);
  const nanoseconds median = *middle;
  nanoseconds sum(0);
  int near = 0;
  for (const nanoseconds step : steps) {
    if (5 * step > 9 * median || 5 * step < median) continue;
    sum += step;
    ++near;
  }
  return sum / near;
}

}  // namespace

Timeline::Timeline(nanoseconds period, nanoseconds slack)
    : period_(period),
      slack_(slack),
      rate_known_(period > nanoseconds(0)),
      usual_(rate_known_ ? period : default_period()) {
  steps_.fill(usual_);
}

nanoseconds Timeline::map(nanoseconds pts, nanoseconds elapsed) {
  const nanoseconds step = pts - source_;
  source_ = pts;
  if (!started_) {
    started_ = true;
    return last_ = pts;
  }
  nanoseconds next = pts + offset_;
  if (broken_off_ || is_jump(step, elapsed)) {
    broken_off_ = false;
    next = last_ + std::max(made_up(), elapsed);
    offset_ = next - pts;
    count_lost(elapsed);
  } else {
    const bool stamped = step != nanoseconds(0);
    if (!stamped) next = last_ + (elapsed > nanoseconds(0) ? elapsed : made_up());
    count_lost(stamped ? step : elapsed);
    learn(stamped ? step : elapsed);
  }
  return last_ = std::max(next, last_ + kLeastStep);
}

bool Timeline::is_jump(nanoseconds step, nanoseconds elapsed) const {
  return step < -slack_ || step > elapsed + std::max(slack_, kPatience * usual_);
}

// Lateness is summed up first, since jitter makes one step long and the next one short.
void Timeline::count_lost(nanoseconds step) {
  if (!rate_known_ || step <= nanoseconds(0)) return;
  late_ += step - usual_;
  const std::int64_t missing = (late_ + usual_ / 4) / usual_;
  if (missing > 0) {
    lost_ += missing;
    late_ -= missing * usual_;
  }
  late_ = std::max(late_, -usual_);
  late_ -= late_ / 4;  // no rate is exact: less than a whole frame is forgotten over time
}

void Timeline::learn(nanoseconds step) {
  if (step <= nanoseconds(0)) return;
  steps_[seen_++ % steps_.size()] = step;
  if (rate_known_) {
    usual_ = usual_step(steps_);
  } else if (seen_ == kEnough) {  // an unknown rate: these few steps stand for all
    usual_ = usual_step(std::span(steps_).first(seen_));
    std::fill(steps_.begin() + seen_, steps_.end(), usual_);
    rate_known_ = true;
  }
}

}  // namespace millrace::io
