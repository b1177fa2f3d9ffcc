#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/schedule/launch_groups.h"
#include "engine/schedule/mailbox.h"
#include "engine/schedule/registry.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/verifier.h"

namespace millrace::engine {
namespace {

std::string fault_of(const Schedule& schedule) {
  const auto fault = verify(schedule);
  return fault ? fault->what : "";
}

TEST(Verifier, PassesEveryGenerator) {
  for (const std::string& name : schedule_names()) {
    for (const int stages : {1, 2, 3, 4, 6, 8}) {
      for (const int microbatches : {1, 2, 4, 8, 12}) {
        for (const bool sync : {false, true}) {
          ScheduleSpec options{.stages = stages,
                               .microbatches = microbatches,
                               .virtual_stages = 2,
                               .vertical_sync = sync};
          Schedule schedule;
          try {
            schedule = make_schedule(name, options);
          } catch (const std::invalid_argument&) {
            continue;  // options it can't have
          }
          const auto fault = verify(schedule);
          EXPECT_FALSE(fault) << fault->text(name) << " at " << stages << " stages, "
                              << microbatches << " microbatches";
        }
      }
    }
  }
}

TEST(Verifier, PassesReplicatedStages) {
  for (const auto& replicas : std::vector<std::vector<int>>{
           {2, 2}, {3, 2}, {2, 3}, {4, 2, 1}, {2, 1, 2}, {15, 1}, {1, 4, 2, 3}}) {
    const Schedule schedule =
        make_schedule("pipedream", {.stages = int(replicas.size()), .replicas = replicas});
    const auto fault = verify(schedule);
    EXPECT_FALSE(fault) << fault->text(testing::PrintToString(replicas));
  }
}

TEST(Verifier, PassesRecomputationWhereWeightsAreThoseOfTheForward) {
  for (const std::string name : {"gpipe", "1f1b", "interleaved", "zb-h1", "pipedream", "2bw"}) {
    const auto fault = verify(make_schedule(name, {.stages = 4, .recompute = true}));
    EXPECT_FALSE(fault) << fault->text(name);
  }
  Schedule pb = make_schedule("pb", {.stages = 3});
  add_recompute(pb);
  EXPECT_EQ(fault_of(pb), "recomputes at other weights than its forward's");
}

TEST(Verifier, NamesTheFault) {
  struct Case {
    ScheduleSpec spec;
    std::function<void(Schedule&)> spoil;
    std::string fault;
  };
  const auto period = [](Schedule& s, int worker) -> std::vector<Action>& {
    return s.workers[std::size_t(worker)].period;
  };
  const auto swap = [&](int worker, std::size_t a, std::size_t b) {
    return [=](Schedule& s) { std::swap(period(s, worker)[a], period(s, worker)[b]); };
  };
  const auto drop_last = [&](Schedule& s) { period(s, 0).pop_back(); };
  const ScheduleSpec replicated{.schedule = "pipedream", .stages = 2, .replicas = {2, 1}};
  const std::vector<Case> cases = {
      // Backward before forward is valid while the version is stored.
      {{.schedule = "pipedream", .stages = 3}, swap(1, 0, 1), ""},
      {{.schedule = "sequential", .stages = 2}, swap(0, 0, 1), "the sample has not been forwarded"},
      {{.schedule = "partime", .stages = 3}, drop_last, "an update is missing"},
      {{.schedule = "partime", .stages = 3},
       [&](Schedule& s) { period(s, 0)[1].gradient += 1; },
       "receives what belongs to sample 2"},
      {{.schedule = "pipedream", .stages = 3},
       [](Schedule& s) {
         s.versions = {2, 2, 1};
       },
       "its weight version is no longer kept"},
      {{.schedule = "2bw", .stages = 2},
       [&](Schedule& s) { period(s, 1)[0].version += 1; },
       "runs at another weight version than the rule says"},
      {{.schedule = "1f1b", .stages = 2},
       [&](Schedule& s) { period(s, 0).erase(period(s, 0).begin()); },
       "forwards must take the samples in order, each once"},
      {{.schedule = "zb-h1", .stages = 2},
       swap(0, 2, 3),  // W0 before I0
       "the weights' gradient before the input's"},
      {{.schedule = "gpipe", .stages = 2, .recompute = true},
       [&](Schedule& s) { period(s, 1).erase(period(s, 1).begin() + 4); },
       "its activations have not been recomputed"},
      {{.schedule = "partime", .stages = 2, .deep_supervision = true},
       [&](Schedule& s) { period(s, 0).erase(period(s, 0).begin() + 2); },
       "its activations have not been recomputed"},
      {{.schedule = "partime", .stages = 2, .deep_supervision = true},
       swap(0, 0, 1),  // L2 before F2
       "the sample has not been forwarded"},
      {{.schedule = "partime", .stages = 2, .deep_supervision = true},
       [&](Schedule& s) { period(s, 0)[1].sample -= 1; },
       "a local loss is of the sample just forwarded, once"},
      {{.schedule = "gpipe", .stages = 2},
       [&](Schedule& s) {
         for (const int worker : {0, 1}) swap(worker, 5, 6)(s);  // B0 B2 B1 B3
       },
       "backwards of a minibatch must go up or down through its samples"},
      {replicated, [](Schedule& s) { std::swap(s.workers[0].replica, s.workers[1].replica); },
       "the sample belongs to another replica"},
      {replicated, drop_last, "its weight version is not made yet"},
      // Both neighbours wait for each other: stage 0 needs its gradient before it forwards the
      // sample that stage 1 needs first: F0 B0 F1 B1.
      {{.schedule = "gpipe", .stages = 2, .microbatches = 2},
       swap(0, 1, 2),
       "deadlock: what it waits for never comes"}};
  for (const auto& [spec, spoil, fault] : cases) {
    Schedule schedule = make_schedule(spec);
    spoil(schedule);
    EXPECT_EQ(fault_of(schedule), fault) << spec.schedule;
  }
}

TEST(TensorSets, AreAsFewAsNoTimingOverwrites) {
  using Sets = std::vector<int>;
  const auto sets = [](const ScheduleSpec& spec) { return tensor_sets(make_schedule(spec)); };
  const TensorSets partime = sets({.schedule = "partime", .stages = 6});  // of 7 slots
  EXPECT_EQ(partime.activations, (Sets{7, 7, 7, 7, 4}));
  EXPECT_EQ(partime.gradients, (Sets{4, 4, 4, 4, 4}));
  EXPECT_EQ(partime.inner, (Sets{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(sets({.schedule = "partime", .stages = 3, .deep_supervision = true}).inner,
            (Sets{1, 1, 1}));
  EXPECT_EQ(sets({.schedule = "pb", .stages = 3}).inner, (Sets{6, 3, 1}));  // of 6 slots
  EXPECT_EQ(sets({.schedule = "pipedream", .stages = 3}).inner, (Sets{4, 2, 1}));
  EXPECT_EQ(sets({.schedule = "gpipe", .stages = 2, .microbatches = 4}).inner, (Sets{4, 4}));
  // An input is read again by its backward, 2d samples later.
  EXPECT_EQ(sets({.schedule = "pb", .stages = 4}).activations, (Sets{8, 8, 4}));
  // A forward writes its output, though recompute keeps nothing until then.
  EXPECT_EQ(sets({.schedule = "zb-h1", .stages = 3, .recompute = true}).inner, (Sets{1, 3, 3}));
  // The weights' gradient reads downstream's after the input's gradient has gone on.
  EXPECT_GT(sets({.schedule = "zb-h1", .stages = 4}).gradients[2],
            sets({.schedule = "1f1b", .stages = 4}).gradients[2]);
  // Four sets divide 12 slots. Without a bound on how far a stage runs ahead it needs more.
  const Schedule more = with_fewest_sets(make_schedule("partime", {.stages = 6}));
  EXPECT_EQ(more.slots(), 12);
  EXPECT_EQ(tensor_sets(more).activations, (Sets{4, 4, 4, 4, 3}));
  EXPECT_EQ(tensor_sets(more, 100).activations, (Sets{12, 12, 12, 6, 3}));
}

TEST(Verifier, SaysWhere) {
  // With too few slots a gradient of partime is overwritten before it is read, two samples later.
  Schedule few = make_schedule("partime", {.stages = 3});
  few.in_flight = 2;
  EXPECT_NE(fault_of(few), "");
  Schedule s = make_schedule("partime", {.stages = 2});
  s.workers[0].period.pop_back();
  const auto fault = verify(s);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->worker, 0);
  EXPECT_NE(fault->text("partime").find("schedule partime, clock "), std::string::npos);
  EXPECT_NE(fault->text("partime").find("worker 0, 0B3(1): an update is missing"),
            std::string::npos);
}

/// How many groups a period of `worker` has.
int groups_a_period(const Schedule& schedule, int worker) {
  const LaunchGroups groups = longest_launch_groups(schedule);
  const Program& program = schedule.workers[worker];
  int count = 0;
  for (std::size_t i = 0; i < program.period.size(); ++i)
    count += groups.ends(worker, std::int64_t(program.prologue.size() + i)) ? 1 : 0;
  return count;
}

TEST(LaunchGroups, AStepOfAStreamIsOneAndAMinibatchsWayThereAnother) {
  for (const char* name : {"partime", "pb", "pipedream", "sequential"}) {
    for (const int stages : {1, 2, 4, 8}) {
      const Schedule schedule = for_recording(make_schedule(name, {.stages = stages}));
      if (std::string(name) == "sequential" && stages > 1) continue;  // there and back
      for (int worker = 0; worker < stages; ++worker)
        EXPECT_EQ(groups_a_period(schedule, worker), 1) << name << " " << stages << " " << worker;
    }
  }
  EXPECT_EQ(for_recording(make_schedule("pipedream", {.stages = 4})).versions,
            (std::vector<int>{4, 4, 2, 1}));  // of 8 slots
  const Schedule gpipe = for_recording(make_schedule("gpipe", {.stages = 3, .microbatches = 4}));
  EXPECT_EQ(groups_a_period(gpipe, 0), 2);
  EXPECT_EQ(groups_a_period(gpipe, 2), 1);
}

TEST(LaunchGroups, EveryScheduleGetsToItsEnd) {
  for (const std::string& name : schedule_names()) {
    for (const int stages : {1, 2, 3, 4, 8}) {
      if (name == "interleaved" && stages % 2 == 1) continue;
      const Schedule schedule =
          for_recording(make_schedule(name, {.stages = stages, .microbatches = 8}));
      EXPECT_FALSE(verify(schedule)) << name << " " << stages;
      for (const int versions : schedule.versions)
        EXPECT_EQ(schedule.slots() / schedule.group % versions, 0) << name << " " << stages;
      std::int64_t actions = 0;
      EXPECT_TRUE(walk_groups(schedule, longest_launch_groups(schedule), 10 * schedule.slots(),
                              [&](int, const Action&) { ++actions; })
                      .ended)
          << name << " " << stages;
      EXPECT_GT(actions, 10 * schedule.slots());
    }
  }
}

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
    const bool recomputed = lowering_.recomputes(stage) && action.op != Op::backward_local;
    if (!forwards && !last && !recomputed)
      see(kActivation, stage, sets_.activations, action.sample);
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
