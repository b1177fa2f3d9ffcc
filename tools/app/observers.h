// Several observers of predictions as one.
#pragma once

#include <vector>

#include "engine/pipeline/feed.h"

namespace millrace::app {

/// Shows each prediction of a fresh sample to all, in order. They outlive it.
class Observers final : public engine::Observer {
 public:
  /// Before the run.
  void add(engine::Observer* observer) { all_.push_back(observer); }
  /// Sees replayed samples, too, and sees each before the others do.
  void add_for_all(engine::Observer* observer) { of_all_.push_back(observer); }

  void shown(engine::Sample& sample) override {
    for (engine::Observer* const observer : of_all_) observer->shown(sample);
    if (sample.info.replayed) return;
    for (engine::Observer* const observer : all_) observer->shown(sample);
  }
  void predicted(engine::Sample& sample, float loss) override {
    for (engine::Observer* const observer : of_all_) observer->predicted(sample, loss);
    if (sample.info.replayed) return;
    for (engine::Observer* const observer : all_) observer->predicted(sample, loss);
  }

 private:
  std::vector<engine::Observer*> all_, of_all_;
};

}  // namespace millrace::app
