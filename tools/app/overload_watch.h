#pragma once

#include <nlohmann/json.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "engine/monitor/overload.h"
#include "engine/trainer/trainer.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// Handles a stream that outruns the pipeline, by monitor.policy. Acts only if frames arrive at
/// their own rate: a source that waits for the pipeline loses nothing, but can be late(). run()
/// belongs to the pipeline's thread, everything else to the main thread.
class OverloadWatch {
 public:
  /// `live`: frames arrive at their own rate. `trainer` outlives this.
  OverloadWatch(const Config& config, engine::Trainer& trainer, bool live)
      : trainer_(trainer),
        policy_(config.monitor.policy),
        live_(live),
        overload_({.policy = live ? engine::policy_of(config.monitor.policy) : engine::Policy::drop,
                   .module_ms = trainer.options().module_ms,
                   .cut = trainer.now().cut,
                   .allowed = [&trainer](const std::vector<int>& cut) {
                     return engine::may_cut_at(trainer.options(), trainer.schedule(), cut);
                   }}) {
    start_over();
  }

  /// Calls Trainer::run() until the feed ends, again after each re-cut.
  engine::Outcome run(engine::Feed& feed, engine::Observer* observer,
                      engine::PipelineOptions options) {
    options.train_every = &train_every_;
    options.drain = &drain_;
    const std::int64_t limit = options.limit;
    engine::Outcome all;
    for (;;) {
      all += trainer_.run(feed, observer, options);
      if (!drain_.load(std::memory_order_acquire) || (limit > 0 && all.trained >= limit))
        return all;
      if (limit > 0) options.limit = limit - all.trained;
      trainer_.recut(cut_);
      drain_.store(false, std::memory_order_release);
    }
  }
  /// Judges the time since the last judgement, once it is long enough, and acts. Returns a line on
  /// the change and its reason, or "".
  std::string look() {
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
    if (change.kind == engine::Change::Kind::none || !live_) return "";
    train_every_.store(overload_.train_every(), std::memory_order_relaxed);
    if (change.kind == engine::Change::Kind::recut) {
      cut_ = change.cut;
      drain_.store(true, std::memory_order_release);
    }
    std::string line = engine::text(change);
    const std::string clock = change.took_ms > change.budget_ms ? engine::slow_clock() : "";
    if (!clock.empty()) line += "; " + clock;
    ++changes_;
    record_.push_back({{"trained", trainer_.monitor().trained()}, {"what", line}});
    if (record_.size() > kRecord) record_.pop_front();
    return line;
  }

  /// Frames have recently taken longer than 1/F, and no remedy is left.
  bool late() const { return overload_.late(); }
  std::int64_t train_every() const { return train_every_.load(std::memory_order_relaxed); }
  nlohmann::ordered_json report() const {
    return {{"policy", policy_},
            {"late", overload_.late()},
            {"train_every", train_every()},
            {"changes", changes_},
            {"latest", record_}};
  }

 private:
  static constexpr std::size_t kRecord = 100;  ///< a run may last for months

  void start_over() {
    begin_ = trainer_.monitor().totals();
    began_ = engine::Clock::now();
  }

  engine::Trainer& trainer_;
  const std::string policy_;
  const bool live_;
  engine::Overload overload_;
  engine::Totals begin_;  ///< at the start of the next interval to judge
  engine::Clock::time_point began_;
  std::atomic<std::int64_t> train_every_{1};
  std::vector<int> cut_;            ///< the new cut; written before drain_ is set
  std::atomic<bool> drain_{false};  ///< the pipeline drains, then is re-cut at cut_
  std::int64_t changes_ = 0;
  std::deque<nlohmann::ordered_json> record_;
};

}  // namespace millrace::app
