#include "engine/monitor/monitor.h"

#include <cstring>
#include <numeric>

namespace millrace::engine {
namespace {

std::int64_t ns(Clock::duration d) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
}

}  // namespace

void StageMeter::begin(Clock::time_point now, int group) {
  if (begun_ >= group) finish();
  ++begun_;
  last_ = now;
}

std::int64_t StageMeter::pass(Clock::time_point now) {
  return ns(now - std::exchange(last_, now));
}

void StageMeter::lap(Part part, Clock::time_point now) {
  const std::int64_t passed = pass(now);
  if (part == Part::compute) compute_ns_ += passed;
  if (part == Part::handoff) handoff_ns_ += passed;
}

void StageMeter::finish() {
  const int steps = std::exchange(begun_, 0);
  const std::int64_t compute = std::exchange(compute_ns_, 0),
                     handoff = std::exchange(handoff_ns_, 0);
  for (int i = 0; i < steps && compute > 0; ++i) record(compute / steps, handoff / steps);
}

void StageMeter::record(std::int64_t compute_ns, std::int64_t handoff_ns) {
  const std::int64_t busy = compute_ns + handoff_ns;
  all_.compute.record(compute_ns);
  all_.handoff.record(handoff_ns);
  all_.busy.record(busy);
  const std::int64_t budget = budget_ns_;
  if (budget > 0 && busy > budget) all_.misses += 1;
  all_.busy_ns += busy;
  all_.steps += 1;
}

void StageMeter::forget_times() {
  for (Histogram* times : {&all_.compute, &all_.handoff, &all_.busy}) times->clear();
}

std::string StageMeter::bytes() const {
  const Measurements copy = all_;
  return {reinterpret_cast<const char*>(&copy), sizeof copy};
}

void StageMeter::take(std::string_view bytes) {
  Measurements copy;
  std::memcpy(static_cast<void*>(&copy), bytes.data(), sizeof copy);
  all_ = copy;
}

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

void Monitor::forget_times() {
  for (StageMeter& meter : meters_) meter.forget_times();
}

void Monitor::admitted(Clock::time_point asked, Clock::time_point given) {
  if (last_given_ != Clock::time_point{}) {
    frames_ns_ += ns(asked - last_given_ - paused_);
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
      period_.record(ns(now - last_prediction_) / group_);
    last_prediction_ = now;
  }
  latency_.record(ns(now - captured));
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
