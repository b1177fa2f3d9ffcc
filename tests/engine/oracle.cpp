#include "tests/engine/oracle.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include "engine/schedule/lowering.h"

namespace millrace::engine {
namespace {

using Key = std::pair<int, std::int64_t>;  ///< stage, sample

using stages::Stage;

class Oracle {
 public:
  Oracle(const Schedule& schedule, std::vector<Stage>& stages, const SampleFunction& sample,
         std::int64_t samples, const LearnFunction& learns, LossGuard* guard,
         std::int64_t guard_lag, const CallFunction& call)
      : schedule_(schedule),
        stages_(stages),
        sample_(sample),
        learns_(learns),
        guard_(guard),
        guard_lag_(guard_lag),
        call_(call),
        applied_(schedule.applied(samples)),
        pending_(stages.size(), Alarm::none),
        updates_(stages.size(), 0) {}

  std::vector<float> run() {
    std::vector<std::int64_t> at;
    const bool ended = walk_programs(schedule_, applied_, at, [&](int worker, std::int64_t index) {
      const Program& program = schedule_.workers[std::size_t(worker)];
      const Action action = program.at(index);
      return action.sample >= applied_ || perform(program, action);
    });
    if (!ended) throw std::logic_error("schedule " + schedule_.name + " deadlocks");
    const bool astray = guard_ && guard_->end();
    for (std::size_t i = 0; astray && i < stages_.size(); ++i)
      apply(stages_[i], int(i), false, Alarm::roll_back);
    return losses_;
  }

 private:
  bool last(int stage) const { return stage + 1 == schedule_.stages; }

  /// Applies the update, or the guard's alarm.
  void apply(Stage& stage, int replica_id, bool learned, Alarm alarm) {
    if (alarm != Alarm::none || !learned) {
      const stages::Change skipped = stage.advance();
      stage.copy_weights(skipped.from, skipped.to);
      if (alarm != Alarm::roll_back) return;
      stage.back_off();
      return stage.restore_snapshot(stage.newest_buffer());
    }
    if (guard_ && updates_[replica_id]++ % LossGuard::kSnapshotEvery == 0)
      stage.take_snapshot(stage.newest_buffer());
    const at::TensorOptions here = stage.parameters().flat().options();
    const at::Tensor rate = at::full({}, stage.next_rate(), here.dtype(at::kDouble));
    at::Tensor skipped = at::zeros({}, here);
    const stages::Change change = stage.advance();
    call(stage, [&] { stage.update(change, rate, skipped); });
  }

  /// Called for samples in order.
  SceneErrors scene_of(std::int64_t sample) {
    const auto [input, target] = sample_(sample);
    const at::Tensor x = input.cpu().contiguous(), y = target.cpu().contiguous();
    const auto numbers = [](const at::Tensor& of) {
      return std::span(of.const_data_ptr<float>(), std::size_t(of.numel()));
    };
    return guard_->scene.see(numbers(x), at::equal(x, y) ? std::span<const float>() : numbers(y));
  }

  bool learns(std::int64_t sample) const { return !learns_ || learns_(sample); }
  static Key key_of(const Program& program, const Action& action) {
    return {action.stage, program.replica};
  }

  /// False if an input of `action` is not there yet.
  bool perform(const Program& program, const Action& action) {
    Stage& stage = stages_[schedule_.replica_id(action.stage, program.replica)];
    switch (action.op) {
      case Op::forward:
        return forward(stage, action);
      case Op::backward_local:
        if (learns(action.sample)) {
          stage.count_local();
          call(stage, [&] { stage.backward_local(kept(action), {.first = true}); });
          local_.insert(key_of(program, action));
        }
        return true;
      case Op::recompute:
        if (learns(action.sample)) call(stage, [&] { stage.recompute(kept(action)); });
        return true;
      case Op::backward:
      case Op::backward_input:
        return backward(program, stage, action);
      case Op::backward_weight:
        if (learns(action.sample)) {
          const stages::Adding adding{.first = stage.count_gradient()};
          call(stage, [&] { stage.backward_weight(kept(action), adding); });
          learned_.insert(key_of(program, action));
        } else {
          left_out_.insert(key_of(program, action));
        }
        ++gradients_made_[action.stage];
        kept_.erase({action.stage, action.sample});
        return true;
      case Op::update:
        // Replicas update with the gradients of all of them.
        if (schedule_.replicas_of(action.stage) > 1 &&
            gradients_made_[action.stage] <= action.sample)
          return false;
        apply(stage, schedule_.replica_id(action.stage, program.replica), is_due(program, action),
              worst_alarm(program, action));
        return true;
    }
    return false;
  }

  /// The worst alarm of the gradients that the update covers.
  Alarm worst_alarm(const Program& program, const Action& action) {
    const int replicas = schedule_.replicas_of(action.stage);
    Alarm worst = std::exchange(
        pending_[std::size_t(schedule_.replica_id(action.stage, program.replica))], Alarm::none);
    for (int replica = 0; replicas > 1 && replica < replicas; ++replica)
      worst = std::max(worst, met_[{action.stage, action.sample / replicas * replicas + replica}]);
    return worst;
  }

  /// Whether every sample that the update covers was trained on, or there is a local gradient, of a
  /// later sample.
  bool is_due(const Program& program, const Action& action) {
    const Key key = key_of(program, action);
    const bool local = local_.erase(key) > 0;
    const bool learned = learned_.erase(key) > 0, left_out = left_out_.erase(key) > 0;
    const int replicas = schedule_.replicas_of(action.stage);
    if (replicas == 1) return local || (learned && !left_out);
    for (int replica = 0; replica < replicas; ++replica) {
      if (!learns(action.sample / replicas * replicas + replica)) return false;
    }
    return true;
  }

  void call(Stage& stage, const std::function<void()>& body) const {
    call_ ? call_(stage, body) : body();
  }

  stages::Activations& kept(const Action& action) {
    const auto found = kept_.find({action.stage, action.sample});
    if (found == kept_.end()) throw std::logic_error("backward without a forward");
    return found->second;
  }

  bool forward(Stage& stage, const Action& action) {
    const Key key{action.stage, action.sample};
    // Replicas predict in the order of samples, too.
    if (last(action.stage) && action.sample != std::int64_t(losses_.size())) return false;
    stages::Tensors inputs;
    if (action.stage == 0) {
      inputs = {sample_(action.sample).first};
    } else {
      const auto sent = activations_.find({action.stage - 1, action.sample});
      if (sent == activations_.end()) return false;
      inputs = std::move(sent->second);
      activations_.erase(sent);
    }
    const at::Tensor target = stage.takes_target() ? sample_(action.sample).second : at::Tensor();
    const int buffer = stage.buffer_of(action.version);
    stages::Activations& kept = kept_[key];
    call(stage, [&] {
      kept = stage.forward(inputs, target, buffer);
      stage.store(kept);
    });
    if (last(action.stage)) {
      const at::Tensor& loss = kept.loss;
      losses_.push_back(loss.item<float>());
      if (guard_) {
        const SampleInfo info{.sample = action.sample, .scene = scene_of(action.sample)};
        alarms_[{action.stage, action.sample + guard_lag_}] = guard_->judge(info, losses_.back());
      }
    } else {
      activations_[key] = kept.outputs;
    }
    return true;
  }

  bool backward(const Program& program, Stage& stage, const Action& action) {
    const int replica_id = schedule_.replica_id(action.stage, program.replica);
    const Key from{last(action.stage) ? action.stage : action.stage + 1, action.gradient};
    std::optional<stages::Tensors> gradients;
    if (learns(action.sample)) gradients.emplace();
    if (!last(action.stage)) {
      const auto sent = gradients_.find(from);
      if (sent == gradients_.end()) return false;
      // With a local loss a stage needs no gradient from downstream.
      if (!stage.learns_locally()) gradients = std::move(sent->second);
      gradients_.erase(sent);
    }
    if (guard_) {  // a verdict goes upstream with the gradient
      const auto said = alarms_.extract(from);
      const Alarm alarm = said ? said.mapped() : Alarm::none;
      if (schedule_.replicas_of(action.stage) > 1) {
        met_[{action.stage, action.sample}] = alarm;  // for the other replicas' updates, too
      } else {
        pending_[replica_id] = std::max(pending_[replica_id], alarm);
      }
      if (action.stage > 0) alarms_[{action.stage, action.sample}] = alarm;
    }
    const bool whole = action.op == Op::backward;
    std::optional<stages::Tensors>& made = gradients_[{action.stage, action.sample}];
    if (gradients) {
      const stages::Adding adding{.first = !whole || stage.count_gradient()};
      call(stage, [&] {
        made = whole ? stage.backward(kept(action), *gradients, adding)
                     : stage.backward_input(kept(action), *gradients);
      });
      if (whole) learned_.insert(key_of(program, action));
    } else if (whole) {
      stage.count_gradient();  // an update from a local gradient alone is the mean of one
      left_out_.insert(key_of(program, action));
    }
    if (whole) {
      ++gradients_made_[action.stage];
      kept_.erase({action.stage, action.sample});
    }
    return true;
  }

  const Schedule& schedule_;
  std::vector<Stage>& stages_;
  const SampleFunction& sample_;
  const LearnFunction& learns_;

  LossGuard* guard_;
  std::int64_t guard_lag_;
  const CallFunction& call_;
  std::int64_t applied_;
  std::map<Key, stages::Activations> kept_;
  std::map<Key, stages::Tensors> activations_;
  std::map<Key, std::optional<stages::Tensors>> gradients_;  ///< none: its loss is not trained on
  // [stage, replica]: whether there were gradients since the last update; samples without one; a
  // local gradient.
  std::set<Key> learned_, left_out_, local_;
  std::map<int, std::int64_t> gradients_made_;  ///< [stage]
  std::map<Key, Alarm> alarms_;                 ///< [stage and sample of the gradient]
  std::vector<Alarm> pending_;                  ///< [replica_id]: the worst since its last update
  std::map<Key, Alarm> met_;                    ///< for gradients of stages with replicas
  std::vector<std::int64_t> updates_;           ///< [replica_id]
  std::vector<float> losses_;
};

}  // namespace

std::vector<float> run_oracle(const Schedule& schedule, std::vector<stages::Stage>& stages,
                              const SampleFunction& sample, std::int64_t samples,
                              const LearnFunction& learns, LossGuard* guard, std::int64_t guard_lag,
                              const CallFunction& call) {
  return Oracle(schedule, stages, sample, samples, learns, guard, guard_lag, call).run();
}

}  // namespace millrace::engine
