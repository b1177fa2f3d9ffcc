// What a run does about a stream that is too fast for it, by monitor.policy.
#pragma once

#include <nlohmann/json.hpp>

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "engine/monitor/overload.h"
#include "engine/trainer/trainer.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// Acts only if frames arrive at their own rate; a source that waits for the pipeline is never too
/// fast. run() belongs to the thread that runs the pipeline, all else to the main thread.
class OverloadWatch {
 public:
  /// `live`: frames arrive at their own rate. The trainer outlives this.
  OverloadWatch(const Config& config, engine::Trainer& trainer, bool live);

  /// Calls Trainer::run(), again after each change of the cut, until the feed ends.
  engine::Outcome run(engine::Feed& feed, engine::Observer* observer,
                      engine::PipelineOptions options);
  /// Judges the time since the last judgement, if it is long enough, and acts. One line on what
  /// changed and why; "" if nothing did.
  std::string look();

  /// Frames lately took longer than 1/F, and no remedy is left.
  bool late() const { return overload_.late(); }
  std::int64_t train_every() const { return train_every_.load(std::memory_order_relaxed); }
  /// "overload" of the report: the policy, its state and the latest changes.
  nlohmann::ordered_json report() const;

 private:
  void start_over() {
    begin_ = trainer_.monitor().totals();
    began_ = engine::Clock::now();
  }

  engine::Trainer& trainer_;
  const std::string policy_;
  const bool live_;
  engine::Overload overload_;
  engine::Totals begin_;  ///< of the interval judged next
  engine::Clock::time_point began_;
  std::atomic<std::int64_t> train_every_{1};
  std::vector<int> cut_;            ///< the new cut; written before drain_ is set
  std::atomic<bool> drain_{false};  ///< the pipeline drains, to be cut anew at cut_
  std::int64_t changes_ = 0;
  std::deque<nlohmann::ordered_json> record_;  ///< the latest changes
};

}  // namespace millrace::app
