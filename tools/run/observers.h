// Several observers of predictions as one.
#pragma once

#include <vector>

#include "engine/pipeline/feed.h"

namespace millrace::tools {

/// Shows each prediction to all, in order. They outlive it.
class Observers final : public engine::Observer {
 public:
  /// Before the run.
  void add(engine::Observer* observer) { all_.push_back(observer); }
  void shown(const engine::SampleInfo& info, int slot) override {
    for (engine::Observer* const observer : all_) observer->shown(info, slot);
  }
  void predicted(const engine::SampleInfo& info, int slot, float loss) override {
    for (engine::Observer* const observer : all_) observer->predicted(info, slot, loss);
  }

 private:
  std::vector<engine::Observer*> all_;
};

}  // namespace millrace::tools
