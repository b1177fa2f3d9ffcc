#include "engine/schedule/schedule.h"

#include <gtest/gtest.h>

#include <stdexcept>  // std::invalid_argument

#include "engine/schedule/staircase.h"

namespace millrace::engine {
namespace {

/// The first `count` actions of a worker as "F0 B2(0) U2".
std::string text(const Program& program, int count, bool staged = false) {
  std::string line;
  for (int i = 0; i < count; ++i) line += (i > 0 ? " " : "") + action_text(program.at(i), staged);
  return line;
}

TEST(Partime, IsItsStaircase) {
  const Schedule s = make_schedule("partime", {.stages = 3});
  ASSERT_EQ(s.workers.size(), 3u);
  EXPECT_EQ(text(s.workers[0], 10), "F0 F1 F2 F3 F4 B4(2) U4 F5 B5(3) U5");
  EXPECT_EQ(text(s.workers[1], 8), "F0 F1 F2 B2(0) U2 F3 B3(1) U3");
  EXPECT_EQ(text(s.workers[2], 6), "F0 B0 U0 F1 B1 U1");
}

TEST(Sequential, IsItsStaircase) {
  const Schedule s = make_schedule("sequential", {.stages = 2});
  EXPECT_EQ(text(s.workers[0], 6), "F0 B0 U0 F1 B1 U1");
  EXPECT_EQ(text(s.workers[1], 6), "F0 B0 U0 F1 B1 U1");
}

TEST(Pb, IsItsStaircase) {
  const Schedule s = make_schedule("pb", {.stages = 3});
  EXPECT_EQ(text(s.workers[0], 10), "F0 F1 F2 F3 F4 B0 U0 F5 B1 U1");
  EXPECT_EQ(text(s.workers[2], 6), "F0 B0 U0 F1 B1 U1");
}

TEST(Pipedream, IsItsStaircase) {
  const Schedule s = make_schedule("pipedream", {.stages = 3});
  EXPECT_EQ(text(s.workers[0], 11), "F0^0 F1^0 F2^0 B0 U0 F3^1 B1 U1 F4^2 B2 U2");
  EXPECT_EQ(text(s.workers[1], 10), "F0^0 F1^0 B0 U0 F2^1 B1 U1 F3^2 B2 U2");
  EXPECT_EQ(text(s.workers[2], 6), "F0^0 B0 U0 F1^1 B1 U1");
  EXPECT_EQ(s.versions, (std::vector<int>{3, 2, 1}));
}

TEST(Pipedream, VerticalSyncUsesStageZerosVersion) {
  const Schedule s = make_schedule("pipedream", {.stages = 3, .vertical_sync = true});
  EXPECT_EQ(text(s.workers[0], 8), "F0^0 F1^0 F2^0 B0 U0 F3^1 B1 U1");
  EXPECT_EQ(text(s.workers[2], 12), "F0^0 B0 U0 F1^0 B1 U1 F2^0 B2 U2 F3^1 B3 U3");
  EXPECT_EQ(s.versions, (std::vector<int>{3, 3, 3}));
}

TEST(TwoBufferedWeights, IsItsStaircase) {
  const Schedule s = make_schedule("2bw", {.stages = 2, .microbatches = 2});
  EXPECT_EQ(text(s.workers[0], 16),
            "F0^0 F1^0 B0 F2^0 B1 U1 F3^0 B2 F4^1 B3 U3 F5^1 B4 F6^2 B5 U5");
  EXPECT_EQ(text(s.workers[1], 10), "F0^0 B0 F1^0 B1 U1 F2^0 B2 F3^0 B3 U3");
}

TEST(Gpipe, IsItsStaircase) {
  const Schedule s = make_schedule("gpipe", {.stages = 3, .microbatches = 3});
  for (const Program& program : s.workers) EXPECT_EQ(text(program, 8), "F0 F1 F2 B0 B1 B2 U2 F3");
}

TEST(OneForwardOneBackward, IsItsStaircase) {
  const Schedule s = make_schedule("1f1b", {.stages = 3, .microbatches = 4});
  EXPECT_EQ(text(s.workers[0], 10), "F0 F1 F2 B0 F3 B1 B2 B3 U3 F4");
  EXPECT_EQ(text(s.workers[1], 10), "F0 F1 B0 F2 B1 F3 B2 B3 U3 F4");
  EXPECT_EQ(text(s.workers[2], 10), "F0 B0 F1 B1 F2 B2 F3 B3 U3 F4");
}

TEST(Interleaved, IsItsStaircase) {
  const Schedule s =
      make_schedule("interleaved", {.stages = 4, .microbatches = 2, .virtual_stages = 2});
  ASSERT_EQ(s.workers.size(), 2u);
  EXPECT_EQ(text(s.workers[0], 10, true), "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1 2U1 0U1");
  EXPECT_EQ(text(s.workers[1], 10, true), "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1 3U1 1U1");
}

TEST(ZeroBubble, IsItsStaircase) {
  const Schedule s = make_schedule("zb-h1", {.stages = 3, .microbatches = 4});
  EXPECT_EQ(text(s.workers[0], 14), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3 U3 F4");
  EXPECT_EQ(text(s.workers[1], 14), "F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3 U3 F4");
  EXPECT_EQ(text(s.workers[2], 14), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3 U3 F4");
}

TEST(ReplicatedPipedream, IsItsStaircase) {
  const Schedule s = make_schedule("pipedream", {.stages = 2, .replicas = {2, 1}});
  ASSERT_EQ(s.workers.size(), 3u);
  EXPECT_EQ(text(s.workers[0], 8), "F0^0 F2^0 B0 U1 F4^1 B2 U3 F6^2");
  EXPECT_EQ(text(s.workers[1], 8), "F1^0 F3^0 B1 U1 F5^1 B3 U3 F7^2");
  EXPECT_EQ(text(s.workers[2], 6), "F0^0 B0 U0 F1^1 B1 U1");
  EXPECT_EQ(s.versions, (std::vector<int>{2, 1}));
  EXPECT_EQ(s.samples_an_update(0), 2);
  EXPECT_EQ(s.trained(7), 6);
  EXPECT_EQ(s.replica_of(0, 5), 1);
  EXPECT_EQ(s.replica_id(1, 0), 2);
  EXPECT_EQ(workers_of_replicas(s), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(gradient_ages(s), (std::vector<std::int64_t>{2, 0}));
}

TEST(ReplicatedPipedream, WithOneReplicaIsPipedream) {
  const Schedule s = make_schedule("pipedream", {.stages = 3, .replicas = {1, 1, 1}});
  EXPECT_EQ(s.workers[0].period, make_schedule("pipedream", {.stages = 3}).workers[0].period);
  EXPECT_EQ(s.samples_an_update(0), 1);
}

TEST(Recompute, ComesBeforeEachBackward) {
  const Schedule s = make_schedule("gpipe", {.stages = 2, .microbatches = 2, .recompute = true});
  EXPECT_EQ(text(s.workers[0], 7), "F0 F1 R0 B0 R1 B1 U1");
  EXPECT_TRUE(needs_of(s, 0).recompute);
  EXPECT_FALSE(needs_of(s, 0).split);
  EXPECT_TRUE(needs_of(make_schedule("zb-h1", {.stages = 2}), 1).split);
}

TEST(Minibatches, RefuseWhatTheyCannotHave) {
  EXPECT_THROW(make_schedule("2bw", {.stages = 4, .microbatches = 3}), std::invalid_argument);
  EXPECT_THROW(make_schedule("gpipe", {.stages = 2, .replicas = {2, 1}}), std::invalid_argument);
  EXPECT_THROW(make_schedule("pipedream", {.stages = 2, .replicas = {2}}), std::invalid_argument);
  EXPECT_THROW(make_schedule("pipedream", {.stages = 2, .replicas = {0, 1}}),
               std::invalid_argument);
  EXPECT_THROW(make_schedule("pipedream", {.stages = 2, .vertical_sync = true, .replicas = {2, 1}}),
               std::invalid_argument);
  EXPECT_THROW(make_schedule("interleaved", {.stages = 5, .virtual_stages = 2}),
               std::invalid_argument);
  EXPECT_THROW(make_schedule("interleaved", {.stages = 6, .microbatches = 4, .virtual_stages = 2}),
               std::invalid_argument);
}

TEST(GradientAges, FollowFromTheText) {
  using Ages = std::vector<std::int64_t>;
  EXPECT_EQ(gradient_ages(make_schedule("pb", {.stages = 3})), (Ages{4, 2, 0}));
  EXPECT_EQ(gradient_ages(make_schedule("pipedream", {.stages = 3})), (Ages{2, 1, 0}));
  EXPECT_EQ(gradient_ages(make_schedule("gpipe", {.stages = 3})), (Ages{0, 0, 0}));
  EXPECT_EQ(gradient_ages(make_schedule("2bw", {.stages = 3})), (Ages{4, 4, 4}));
  EXPECT_EQ(gradient_ages(make_schedule("partime", {.stages = 4})),
            (std::vector<std::int64_t>{6, 4, 2, 0}));
  EXPECT_EQ(gradient_ages(make_schedule("sequential", {.stages = 3})),
            (std::vector<std::int64_t>{0, 0, 0}));
}

TEST(GradientAges, OfAStagesOwnLossAreZeroWhereItGoesBackAtOnce) {
  using Ages = std::vector<std::int64_t>;
  EXPECT_EQ(own_gradient_ages(make_schedule("partime", {.stages = 3})), (Ages{0, 0, 0}));
  EXPECT_EQ(own_gradient_ages(make_schedule("pb", {.stages = 3})), (Ages{4, 2, 0}));
  EXPECT_EQ(own_gradient_ages(make_schedule("pipedream", {.stages = 3})), (Ages{2, 1, 0}));
}

TEST(Programs, EndWhenEveryActionIsBeyondTheStream) {
  const Schedule s = make_schedule("partime", {.stages = 2});
  EXPECT_FALSE(s.workers[0].over(0, 1));
  EXPECT_TRUE(s.workers[0].over(0, 0));
  EXPECT_TRUE(s.workers[0].over(2, 2));
  EXPECT_FALSE(s.workers[0].over(2, 3));
}

TEST(MakeSchedule, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(make_schedule("partme", {.stages = 2}), std::invalid_argument);
  EXPECT_THROW(make_schedule("partime", {.stages = 0}), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::engine
