#include "engine/oracle.h"

#include <ATen/ATen.h>  // detach

#include <map>        // values by stage and sample
#include <stdexcept>  // std::logic_error

namespace millrace::engine {
namespace {

using Key = std::pair<int, std::int64_t>;  ///< stage, sample

class Oracle {
 public:
  Oracle(const Schedule& schedule, std::vector<stages::Stage>& stages, const SampleFunction& sample,
         std::int64_t samples)
      : schedule_(schedule),
        stages_(stages),
        sample_(sample),
        applied_(schedule.applied(samples)) {}

  std::vector<float> run() {
    std::vector<std::int64_t> at(schedule_.workers.size(), 0);
    for (bool moved = true, done = false; !done;) {
      if (!moved) throw std::logic_error("schedule " + schedule_.name + " deadlocks");
      moved = false;
      done = true;
      for (std::size_t worker = 0; worker < at.size(); ++worker) {
        const Program& program = schedule_.workers[worker];
        if (program.over(at[worker], applied_)) continue;
        done = false;
        const Action action = program.at(at[worker]);
        if (action.sample < applied_ && !perform(action)) continue;
        ++at[worker];
        moved = true;
      }
    }
    return losses_;
  }

 private:
  bool last(int stage) const { return stage + 1 == schedule_.stages; }

  /// False if what `action` needs is not there yet.
  bool perform(const Action& action) {
    switch (action.op) {
      case Op::forward:
        return forward(action.stage, action.sample, action.version);
      case Op::backward:
        return backward(action);
      case Op::update:
        stages_[action.stage].update();
        return true;
    }
    return false;
  }

  bool forward(int stage, std::int64_t sample, std::int64_t version) {
    at::Tensor input;
    if (stage == 0) {
      input = sample_(sample).first;
    } else {
      const auto sent = activations_.find({stage - 1, sample});
      if (sent == activations_.end()) return false;
      input = sent->second;
      activations_.erase(sent);
    }
    stages::Activations& kept = kept_[{stage, sample}];
    if (last(stage)) {
      kept = stages_[stage].forward(input, sample_(sample).second, version);
      losses_.push_back(kept.loss.item<float>());
    } else {
      kept = stages_[stage].forward(input, version);
      activations_[{stage, sample}] = kept.output.detach();
    }
    return true;
  }

  bool backward(const Action& action) {
    at::Tensor gradient;
    if (!last(action.stage)) {
      const auto sent = gradients_.find({action.stage + 1, action.gradient});
      if (sent == gradients_.end()) return false;
      gradient = sent->second;
      gradients_.erase(sent);
    }
    const auto kept = kept_.find({action.stage, action.sample});
    if (kept == kept_.end()) throw std::logic_error("backward without a forward");
    gradients_[{action.stage, action.sample}] =
        stages_[action.stage].backward(kept->second, gradient);
    kept_.erase(kept);
    return true;
  }

  const Schedule& schedule_;
  std::vector<stages::Stage>& stages_;
  const SampleFunction& sample_;
  std::int64_t applied_;
  std::map<Key, stages::Activations> kept_;
  std::map<Key, at::Tensor> activations_, gradients_;
  std::vector<float> losses_;
};

}  // namespace

std::vector<float> run_oracle(const Schedule& schedule, std::vector<stages::Stage>& stages,
                              const SampleFunction& sample, std::int64_t samples) {
  return Oracle(schedule, stages, sample, samples).run();
}

}  // namespace millrace::engine
