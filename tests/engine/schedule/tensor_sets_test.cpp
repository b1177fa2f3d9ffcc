#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/schedule/launch_groups.h"
#include "engine/schedule/mailbox.h"
#include "engine/schedule/registry.h"
#include "engine/schedule/verifier.h"

namespace millrace::engine {
namespace {

/// Runs a stream with some timing: an action writes from its beginning, reads until its end, and
/// then sends, once its links have room. Each worker has a random speed.
class Timing {
 public:
  Timing(const Schedule& schedule, const TensorSets& sets, std::int64_t samples, unsigned seed)
      : schedule_(schedule),
        sets_(sets),
        samples_(samples),
        random_(seed),
        mail_(lowering_, sets.capacity),
        at_(schedule.workers.size(), 0),
        begun_(at_.size(), false) {
    for (std::size_t worker = 0; worker < at_.size(); ++worker)
      speeds_.push_back(std::uniform_int_distribution(1, 30)(random_));
  }

  /// What was overwritten too early; empty: nothing.
  std::string run() {
    std::discrete_distribution<std::size_t> any(speeds_.begin(), speeds_.end());
    for (int idle = 0; idle < 10'000 && wrong_.empty(); ++idle) {
      if (std::ranges::all_of(at_, [&](const auto& at) { return ended(&at - at_.data()); }))
        return "";
      if (move(any(random_))) idle = 0;
    }
    return wrong_.empty() ? "deadlock" : wrong_;
  }

 private:
  enum Kind { kActivation, kGradient, kInner, kStored };

  bool ended(std::ptrdiff_t worker) const {
    return at_[std::size_t(worker)] >= schedule_.workers[std::size_t(worker)].end(samples_);
  }
  bool move(std::size_t worker) {
    if (ended(std::ptrdiff_t(worker))) return false;
    const Action action = schedule_.workers[worker].at(at_[worker]);
    if (action.sample < samples_ && !act(int(worker), action)) return false;
    if (!begun_[worker]) ++at_[worker];
    return true;
  }
  bool act(int worker, const Action& action) {
    const Lowered lowered = lowering_(worker, action);
    const bool begins = !begun_[std::size_t(worker)];
    if (begins) {
      if (!mail_.have(lowered.needs, 0)) return false;
      for (const Signal& need : lowered.needs) mail_.take(need, [](char) {});
      each(action, /*writes=*/true, [&](std::int64_t& item, std::int64_t mine) { item = mine; });
    } else {
      if (!mail_.has_room(lowered.gives, [&](int other) { return ended(other); })) return false;
      each(action, /*writes=*/false, [&](std::int64_t item, std::int64_t mine) {
        if (item != mine) wrong_ = action_text(action, true) + " read " + std::to_string(item);
      });
      for (const Signal& signal : lowered.gives) mail_.give(signal, 0);
    }
    begun_[std::size_t(worker)] = begins;
    return true;
  }
  template <class Visit>
  void each(const Action& action, bool writes, const Visit& visit) {
    const int stage = action.stage;
    const auto see = [&](Kind kind, int owner, const std::vector<int>& sets, std::int64_t item) {
      const std::int64_t set = item % schedule_.slots() % sets[std::size_t(owner)];
      visit(items_[{kind, owner, set}], item);
    };
    const bool forwards = action.op == Op::forward, takes = takes_gradient(action.op),
               first = stage == 0, last = lowering_.last(stage),
               stores = schedule_.stores_inputs && !first && lowering_.supervised(stage);
    if (action.op == Op::update) return;
    if (writes) {
      if (forwards && !last) see(kActivation, stage, sets_.activations, action.sample);
      if (forwards || action.op == Op::recompute) see(kInner, stage, sets_.inner, action.sample);
      if (forwards && stores) see(kStored, stage, sets_.stored, action.sample);
      if (takes && !first) see(kGradient, stage - 1, sets_.gradients, action.sample);
      return;
    }
    const bool from_stored = stores && action.op == Op::recompute;
    if (from_stored) see(kStored, stage, sets_.stored, action.sample);
    if (!first && !from_stored && !(stores && takes))
      see(kActivation, stage - 1, sets_.activations, action.sample);
    if (!forwards) see(kInner, stage, sets_.inner, action.sample);
    if (takes && !last) see(kGradient, stage, sets_.gradients, action.gradient);
  }

  const Schedule& schedule_;
  const TensorSets& sets_;
  const std::int64_t samples_;
  std::mt19937 random_;
  Lowering lowering_{schedule_};
  Mailbox<char> mail_;
  std::vector<std::int64_t> at_;
  std::vector<bool> begun_;  ///< [worker]: its current action
  std::vector<double> speeds_;
  std::map<std::tuple<Kind, int, std::int64_t>, std::int64_t> items_;
  std::string wrong_;
};

/// A stream may end at any slot, and stages then run on at their own pace.
TEST(TensorSets, LastInAnyTimingOfAStreamOfAnyLength) {
  std::mt19937 random(1);
  for (const char* name : {"partime", "pb", "pipedream", "2bw", "gpipe", "1f1b", "zb-h1"}) {
    for (const int stages : {2, 3, 4, 5, 8}) {
      for (const int supervised : {0, 1, 2}) {  // 2: with stored inputs
        const bool whole = std::string(name) != "partime" && std::string(name) != "pb";
        if (whole && supervised) continue;
        Schedule eager = make_schedule(
            name, {.stages = stages, .microbatches = stages, .deep_supervision = supervised > 0});
        eager.stores_inputs = supervised == 2;
        for (const Schedule& schedule : {eager, with_fewest_sets(for_recording(eager))}) {
          const TensorSets sets = tensor_sets(schedule);
          for (int trial = 0; trial < 40; ++trial) {
            const std::int64_t samples = schedule.applied(schedule.group + random() % 60);
            const std::string wrong = Timing(schedule, sets, samples, unsigned(random())).run();
            ASSERT_EQ(wrong, "") << name << ", " << stages << " stages, " << samples << " samples";
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace millrace::engine
