// Several observers of predictions as one.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/pipeline/feed.h"

namespace millrace::app {

/// Shows each prediction of a fresh sample to all, in order, numbered as if there were no others.
/// They outlive it.
class Observers final : public engine::Observer {
 public:
  /// Before the run.
  void add(engine::Observer* observer) { all_.push_back(observer); }
  /// Sees replayed samples, too, and sees each before the others do; numbers are those of all
  /// samples.
  void add_for_all(engine::Observer* observer) { of_all_.push_back(observer); }

  void shown(const engine::SampleInfo& info, int slot) override {
    for (engine::Observer* const observer : of_all_) observer->shown(info, slot);
    const engine::SampleInfo fresh = numbered(info, replays_shown_);
    if (info.replayed) return;
    for (engine::Observer* const observer : all_) observer->shown(fresh, slot);
  }
  void predicted(const engine::SampleInfo& info, int slot, float loss) override {
    for (engine::Observer* const observer : of_all_) observer->predicted(info, slot, loss);
    const engine::SampleInfo fresh = numbered(info, replays_predicted_);
    if (info.replayed) return;
    for (engine::Observer* const observer : all_) observer->predicted(fresh, slot, loss);
  }

 private:
  static engine::SampleInfo numbered(engine::SampleInfo info, std::int64_t& replays) {
    replays += info.replayed ? 1 : 0;
    info.sample -= replays;
    return info;
  }

  std::vector<engine::Observer*> all_, of_all_;
  std::int64_t replays_shown_ = 0, replays_predicted_ = 0;
};

}  // namespace millrace::app
