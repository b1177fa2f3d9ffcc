#include "engine/monitor.h"

namespace millrace::engine {
namespace {

std::int64_t ns(Clock::duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

}  // namespace

void StageMeter::begin(Clock::time_point now) {
  finish();
  last_ = now;
}

void StageMeter::lap(Part part, Clock::time_point now) {
  const std::int64_t passed = ns(now - last_);
  last_ = now;
  if (part == Part::compute) compute_ns_ += passed;
  if (part == Part::handoff) handoff_ns_ += passed;
}

void StageMeter::finish() {
  if (compute_ns_ == 0) return;
  const std::int64_t busy = compute_ns_ + handoff_ns_;
  compute_.record(compute_ns_);
  handoff_.record(handoff_ns_);
  busy_.record(busy);
  if (budget_ns_ > 0 && busy > budget_ns_) {
    misses_.store(misses_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  }
  compute_ns_ = handoff_ns_ = 0;
}

Monitor::Monitor(int stages, double fps)
    : stages_(stages), fps_(fps), meters_(new StageMeter[stages]) {
  if (fps > 0) {
    for (int i = 0; i < stages; ++i) meters_[i].set_budget(std::int64_t(1e9 / fps));
  }
}

void Monitor::predicted(Clock::time_point captured, Clock::time_point now) {
  latency_.record(ns(now - captured));
  if (period_count_.load(std::memory_order_relaxed) > 0) period_.record(ns(now - last_prediction_));
  last_prediction_ = now;
  period_count_.store(period_count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

Reading Monitor::read() const {
  Reading r;
  for (int i = 0; i < stages_; ++i) {
    const StageMeter& meter = meters_[i];
    r.stage.push_back(meter.compute().median_ms());
    r.handoff.push_back(meter.handoff().median_ms());
    r.stage_busy.push_back(meter.busy().median_ms());
    r.updates.push_back(meter.updates());
    r.misses.push_back(meter.misses());
    r.gradient_age.push_back(meter.gradient_age());
    r.T += r.stage.back();
    if (r.stage_busy.back() > r.bottleneck) {
      r.bottleneck = r.stage_busy.back();
      r.bottleneck_stage = i;
    }
  }
  r.T_over_N = r.T / stages_;
  r.step_p50 = period_.median_ms();
  r.step_p99 = period_.quantile_ms(0.99);
  if (r.step_p50 > 0) r.speedup_K = r.T / r.step_p50;
  r.latency_p50 = latency_.median_ms();
  r.latency_p99 = latency_.quantile_ms(0.99);
  r.latency_max = latency_.max_ms();
  r.F = fps_;
  r.budget = fps_ > 0 ? 1e3 / fps_ : 0;
  r.holds = fps_ <= 0 || r.bottleneck <= r.budget;
  return r;
}

}  // namespace millrace::engine
