#include "engine/schedule/verifier.h"

#include <gtest/gtest.h>

#include "engine/schedule/registry.h"

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
  using Counts = std::vector<int>;
  for (const Counts& replicas : std::vector<Counts>{{2, 1},
                                                    {1, 2},
                                                    {2, 2},
                                                    {3, 1},
                                                    {1, 3},
                                                    {3, 2},
                                                    {2, 3},
                                                    {4, 2, 1},
                                                    {1, 2, 1},
                                                    {2, 1, 2},
                                                    {15, 1},
                                                    {1, 4, 2, 3}}) {
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

}  // namespace
}  // namespace millrace::engine
