// What a run does about a stream that is too fast for it: it watches, acts by the config's policy,
// and keeps a record.
#pragma once

#include <nlohmann/json.hpp>  // report

#include <atomic>   // what workers follow
#include <cstdint>  // counts
#include <deque>    // the record
#include <string>   // lines
#include <vector>   // cut

#include "engine/monitor/overload.h"
#include "engine/trainer/trainer.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// Acts where frames come at their own rate; a source that waits for the pipeline is never too
/// fast. run() is the thread's that runs the pipeline; all else the main thread's.
class OverloadWatch {
 public:
  /// `live`: frames come at their own rate. The trainer outlives it.
  OverloadWatch(const Config& config, engine::Trainer& trainer, bool live);

  /// Trainer::run(), and once more after each change of the cut, until the feed ends.
  engine::Outcome run(engine::Feed& feed, engine::Observer* observer,
                      engine::PipelineOptions options);
  /// Judges what has passed since the last judgement, if that is enough, and acts. What has
  /// changed and why, in a line; "" if nothing has.
  std::string look();

  /// Frames lately took longer than 1/F, and nothing is left to do about it.
  bool late() const { return overload_.late(); }
  std::int64_t train_every() const { return train_every_.load(std::memory_order_relaxed); }
  /// "overload": the policy, how it stands, and the latest changes.
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
  engine::Totals begin_;  ///< of the stretch that is judged next
  engine::Clock::time_point began_;
  std::atomic<std::int64_t> train_every_{1};
  std::vector<int> cut_;            ///< what drain_ is for; written before it is set
  std::atomic<bool> drain_{false};  ///< the pipeline is to run empty, and to be cut at cut_
  std::int64_t changes_ = 0;
  std::deque<nlohmann::ordered_json> record_;  ///< the latest of them
};

}  // namespace millrace::app
