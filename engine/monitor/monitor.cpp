#include "engine/monitor/monitor.h"

#include <numeric>

namespace millrace::engine {

Monitor::Monitor(std::vector<int> replicas, double fps, int group)
    : replicas_(std::move(replicas)),
      group_(group),
      meters_(std::accumulate(replicas_.begin(), replicas_.end(), std::size_t(0))) {
  set_fps(fps);
}

void Monitor::set_fps(double fps) {
  fps_ = fps;
  StageMeter* meter = meters_.data();
  for (const int count : replicas_) {
    for (int i = 0; i < count; ++i)
      (meter++)->set_budget(fps > 0 ? std::int64_t(1e9 / fps * count) : 0);
  }
}

void Monitor::admitted(Clock::time_point asked, Clock::time_point given) {
  if (last_given_ != Clock::time_point{}) {
    frames_ns_ += ns_of(asked - last_given_ - paused_);
    frames_ += 1;
  }
  paused_ = {};
  last_given_ = given;
}

Totals Monitor::totals() const {
  Totals totals{.frames = frames_, .frames_ns = frames_ns_};
  const StageMeter* meter = meters_.data();
  for (const int replicas : replicas_) {
    Totals::Stage stage{.replicas = replicas};
    for (int replica = 0; replica < replicas; ++replica, ++meter) {
      stage.steps += meter->measured().steps;
      stage.busy_ns += meter->measured().busy_ns;
    }
    totals.stages.push_back(stage);
  }
  return totals;
}

void Monitor::predicted(Clock::time_point captured, Clock::time_point now) {
  if (latency_.count() % group_ == 0) {
    for (int i = 0; i < group_ && latency_.count() > 0; ++i)
      period_.record(ns_of(now - last_prediction_) / group_);
    last_prediction_ = now;
  }
  latency_.record(ns_of(now - captured));
}

Reading Monitor::read() const {
  Reading r;
  const StageMeter* meter = meters_.data();
  int workers = 0;
  for (int stage = 0; stage < int(replicas_.size()); ++stage) {
    const int replicas = replicas_[stage];
    double compute = 0, handoff = 0, busy = 0;
    std::int64_t misses = 0;
    r.skipped.push_back(meter->measured().skipped);
    r.updates.push_back(meter->measured().updates);
    const Histogram& ages = meter->measured().ages;
    r.gradient_age.push_back(std::int64_t(ages.quantile(0.5)));
    r.gradient_age_spread.emplace_back(std::int64_t(ages.quantile(0)), ages.max());
    for (int replica = 0; replica < replicas; ++replica, ++meter) {
      compute += meter->measured().compute.median_ms() / replicas;
      handoff += meter->measured().handoff.median_ms() / replicas;
      busy += meter->measured().busy.median_ms() / replicas;
      misses += meter->measured().misses;
    }
    r.stage.push_back(compute);
    r.handoff.push_back(handoff);
    r.stage_busy.push_back(busy);
    r.misses.push_back(misses);
    r.T += compute;
    workers += replicas;
    if (busy / replicas > r.bottleneck) {
      r.bottleneck = busy / replicas;
      r.bottleneck_stage = stage;
    }
  }
  r.T_over_N = r.T / workers;
  r.step_p50 = period_.median_ms();
  r.step_p99 = period_.quantile_ms(0.99);
  if (r.step_p50 > 0) r.speedup_K = r.T / r.step_p50;
  r.latency_p50 = latency_.median_ms();
  r.latency_p99 = latency_.quantile_ms(0.99);
  r.latency_max = latency_.max_ms();
  r.F = fps_;
  r.budget = r.F > 0 ? 1e3 / r.F : 0;
  r.holds = r.F <= 0 || r.bottleneck <= r.budget;
  return r;
}

}  // namespace millrace::engine
