#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/pipeline/feed.h"

namespace millrace::app {

/// Shows each prediction of a fresh sample to every observer, in order. Observers are added before
/// the run and outlive it.
class Observers final : public engine::Observer {
 public:
  using See = std::function<void(engine::Sample& sample, float loss)>;

  void add(engine::Observer* observer) { fresh_.push_back(observer); }
  /// `see` is called as Observer::predicted() is.
  void add(See see) {
    made_.push_back(std::make_unique<Function>(std::move(see)));
    add(made_.back().get());
  }
  /// This one also sees replayed samples, and sees every sample before the others.
  void add_for_all(engine::Observer* observer) { all_.push_back(observer); }

  void shown(engine::Sample& sample) override {
    each(sample, [&](engine::Observer& observer) { observer.shown(sample); });
  }
  void predicted(engine::Sample& sample, float loss) override {
    each(sample, [&](engine::Observer& observer) { observer.predicted(sample, loss); });
  }

 private:
  struct Function final : engine::Observer {
    explicit Function(See see) : see_(std::move(see)) {}
    void predicted(engine::Sample& sample, float loss) override { see_(sample, loss); }
    See see_;
  };
  template <class Show>
  void each(const engine::Sample& sample, const Show& show) {
    for (engine::Observer* const observer : all_) show(*observer);
    if (sample.info.replayed) return;
    for (engine::Observer* const observer : fresh_) show(*observer);
  }

  std::vector<engine::Observer*> fresh_, all_;
  std::vector<std::unique_ptr<Function>> made_;
};

}  // namespace millrace::app
