#include "engine/schedule/verifier.h"

#include <gtest/gtest.h>

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
  for (const std::vector<int>& replicas : {std::vector<int>{2, 1},
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
  EXPECT_EQ(fault_of(make_schedule("pb", {.stages = 3, .recompute = true})),
            "recomputes at other weights than its forward's");
}

TEST(Verifier, NamesTheFault) {
  Schedule s = make_schedule("pipedream", {.stages = 3});
  std::swap(s.workers[1].period[0], s.workers[1].period[1]);
  EXPECT_EQ(fault_of(s), "") << "backward before forward is as good while the version is kept";

  s = make_schedule("sequential", {.stages = 2});
  std::swap(s.workers[0].period[0], s.workers[0].period[1]);
  EXPECT_EQ(fault_of(s), "the sample has not been forwarded");

  s = make_schedule("partime", {.stages = 3});
  s.workers[0].period.pop_back();
  EXPECT_EQ(fault_of(s), "an update is missing");

  s = make_schedule("partime", {.stages = 3});
  s.workers[0].period[1].gradient += 1;
  EXPECT_EQ(fault_of(s), "receives what belongs to sample 2");

  s = make_schedule("pipedream", {.stages = 3});
  s.versions = {2, 2, 1};
  EXPECT_EQ(fault_of(s), "its weight version is no longer kept");

  s = make_schedule("2bw", {.stages = 2});
  s.workers[1].period[0].version += 1;
  EXPECT_EQ(fault_of(s), "runs at another weight version than the rule says");

  s = make_schedule("1f1b", {.stages = 2});
  s.workers[0].period.erase(s.workers[0].period.begin());
  EXPECT_EQ(fault_of(s), "forwards must take the samples in order, each once");
}

TEST(Verifier, NamesFaultsOfPartsAndReplicas) {
  Schedule s = make_schedule("zb-h1", {.stages = 2});
  std::swap(s.workers[0].period[2], s.workers[0].period[3]);  // W0 before I0
  EXPECT_EQ(fault_of(s), "the weights' gradient before the input's");

  s = make_schedule("gpipe", {.stages = 2, .recompute = true});
  s.workers[1].period.erase(s.workers[1].period.begin() + 4);
  EXPECT_EQ(fault_of(s), "its activations have not been recomputed");

  s = make_schedule("gpipe", {.stages = 2});
  std::swap(s.workers[0].period[5], s.workers[0].period[6]);
  std::swap(s.workers[1].period[5], s.workers[1].period[6]);  // B0 B2 B1 B3
  EXPECT_EQ(fault_of(s), "backwards of a minibatch must go up or down through its samples");

  s = make_schedule("pipedream", {.stages = 2, .replicas = {2, 1}});
  std::swap(s.workers[0].replica, s.workers[1].replica);
  EXPECT_EQ(fault_of(s), "the sample belongs to another replica");

  s = make_schedule("pipedream", {.stages = 2, .replicas = {2, 1}});
  s.workers[0].period.pop_back();
  EXPECT_EQ(fault_of(s), "its weight version is not made yet");
}

TEST(Verifier, FindsDeadlocks) {
  // Both neighbours wait for each other: stage 0 wants its gradient before it forwards what
  // stage 1 wants first.
  Schedule s = make_schedule("gpipe", {.stages = 2, .microbatches = 2});
  std::swap(s.workers[0].period[1], s.workers[0].period[2]);  // F0 B0 F1 B1
  EXPECT_EQ(fault_of(s), "deadlock: what it waits for never comes");
}

TEST(Verifier, FindsSlotsThatAreOverwritten) {
  // With too few slots a gradient of partime is overwritten before it is read, two samples later.
  Schedule s = make_schedule("partime", {.stages = 3});
  s.in_flight = 2;
  EXPECT_NE(fault_of(s), "");
}

TEST(Verifier, SaysWhere) {
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
