#include "tools/app/overload_watch.h"

#include <utility>

#include "engine/monitor/core_clock.h"

namespace millrace::app {
namespace {

constexpr std::size_t kRecord = 100;  // changes; a run may go on for months

engine::OverloadOptions options_of(const Config& config, engine::Trainer& trainer) {
  return {.policy = engine::policy_of(config.monitor.policy),
          .module_ms = trainer.module_ms(),
          .cut = trainer.cut(),
          .allowed = [&trainer](const std::vector<int>& cut) { return trainer.may_cut_at(cut); }};
}

}  // namespace

OverloadWatch::OverloadWatch(const Config& config, engine::Trainer& trainer, bool live)
    : trainer_(trainer),
      policy_(config.monitor.policy),
      live_(live),
      overload_(options_of(config, trainer)) {
  start_over();
}

engine::Outcome OverloadWatch::run(engine::Feed& feed, engine::Observer* observer,
                                   engine::PipelineOptions options) {
  options.train_every = &train_every_;
  options.drain = &drain_;
  const std::int64_t limit = options.limit;
  engine::Outcome all;
  for (;;) {
    all += trainer_.run(feed, observer, options);
    if (!drain_.load(std::memory_order_acquire) || (limit > 0 && all.trained >= limit)) return all;
    if (limit > 0) options.limit = limit - all.trained;
    trainer_.recut(cut_);
    drain_.store(false, std::memory_order_release);
  }
}

std::string OverloadWatch::look() {
  if (!live_) return "";
  if (drain_.load(std::memory_order_acquire)) {
    start_over();
    return "";
  }
  engine::Totals now = trainer_.monitor().totals();
  const auto passed = std::chrono::duration<double>(engine::Clock::now() - began_);
  if (!overload_.enough(engine::frames_between(begin_, now), passed.count())) return "";
  const engine::Load load = engine::load_between(begin_, now, trainer_.monitor().read().budget);
  begin_ = std::move(now);
  began_ = engine::Clock::now();
  const engine::Change change = overload_.judge(load);
  if (change.kind == engine::Change::Kind::none) return "";
  train_every_.store(overload_.train_every(), std::memory_order_relaxed);
  if (change.kind == engine::Change::Kind::recut) {
    cut_ = change.cut;
    drain_.store(true, std::memory_order_release);
  }
  std::string line = engine::text(change);
  const std::string clock = change.took_ms > change.budget_ms ? engine::slow_clock() : "";
  if (!clock.empty()) line += "; " + clock;
  ++changes_;
  record_.push_back({{"trained", trainer_.trained()}, {"what", line}});
  if (record_.size() > kRecord) record_.pop_front();
  return line;
}

nlohmann::ordered_json OverloadWatch::report() const {
  return {{"policy", policy_},
          {"late", overload_.late()},
          {"train_every", train_every()},
          {"changes", changes_},
          {"latest", record_}};
}

}  // namespace millrace::app
