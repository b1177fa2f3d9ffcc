#include "engine/schedule/staircase.h"

#include <gtest/gtest.h>

namespace millrace::engine {
namespace {

std::string drawn(const Schedule& schedule, std::int64_t samples) {
  std::string text;
  for (const auto& row : draw_staircase(schedule, samples).rows) {
    for (const auto& cell : row) {
      text += cell ? action_text(cell->action, false) + (cell->updates ? "U" : "") : ".";
      text += ' ';
    }
    text.back() = '\n';
  }
  return text;
}

TEST(Staircase, OfGpipe) {
  EXPECT_EQ(drawn(make_schedule("gpipe", {.stages = 3, .microbatches = 3}), 3),
            "F0 F1 F2 . . . . B0 B1 B2U\n"
            ". F0 F1 F2 . . B0 B1 B2U .\n"
            ". . F0 F1 F2 B0 B1 B2U . .\n");
}

TEST(Staircase, OfPipedream) {
  EXPECT_EQ(drawn(make_schedule("pipedream", {.stages = 2}), 3),
            "F0^0 F1^0 . B0U F2^1 B1U . B2U\n"
            ". F0^0 B0U F1^1 B1U F2^2 B2U .\n");
}

TEST(Staircase, OfPartime) {
  EXPECT_EQ(drawn(make_schedule("partime", {.stages = 2}), 4),
            "F0 F1 F2 B2(0)U F3 B3(1)U . . .\n"
            ". F0 B0U F1 B1U F2 B2U F3 B3U\n");
}

TEST(Staircase, OfReplicatedPipedream) {
  EXPECT_EQ(drawn(make_schedule("pipedream", {.stages = 2, .replicas = {2, 1}}), 4),
            "F0^0 F2^0 . B0U . . . B2U . .\n"
            "F1^0 F3^0 . . . B1U . . . B3U\n"
            ". F0^0 B0U F1^1 B1U F2^2 B2U F3^3 B3U .\n");
}

TEST(Staircase, OfZeroBubble) {
  EXPECT_EQ(drawn(make_schedule("zb-h1", {.stages = 3, .microbatches = 4}), 4),
            "F0 F1 F2 . . I0 W0 F3 I1 W1 I2 W2 I3 W3U\n"
            ". F0 F1 . I0 F2 I1 W0 F3 I2 W1 I3 W2 W3U\n"
            ". . F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3U\n");
}

TEST(Bubble, OfZeroBubbleIsAThird) {
  // F, I and W of one tick each: N-1 idle ticks of 3 m + N-1 (Qi et al., section 2.1: H1).
  for (const int p : {1, 2, 4, 8}) {
    for (const int m : {p, 2 * p, 3 * p}) {
      EXPECT_NEAR(
          draw_staircase(make_schedule("zb-h1", {.stages = p, .microbatches = m}), m).bubble(),
          double(p - 1) / (3 * m + p - 1), 1e-15)
          << p << " stages, " << m << " microbatches";
    }
  }
}

TEST(Bubble, IsThePapersFormula) {
  // GPipe and 1F1B idle (p-1)/(m+p-1) of the time, interleaved v times less beside the same work.
  for (const int p : {1, 2, 4}) {
    for (const int m : {4, 8}) {
      const double idle = double(p - 1) / (m + p - 1);
      EXPECT_DOUBLE_EQ(
          draw_staircase(make_schedule("gpipe", {.stages = p, .microbatches = m}), m).bubble(),
          idle);
      EXPECT_DOUBLE_EQ(
          draw_staircase(make_schedule("1f1b", {.stages = p, .microbatches = m}), m).bubble(),
          idle);
      const int v = 2;
      const Schedule interleaved =
          make_schedule("interleaved", {.stages = p * v, .microbatches = m, .virtual_stages = v});
      EXPECT_DOUBLE_EQ(draw_staircase(interleaved, m).bubble(), double(p - 1) / (v * m + p - 1));
    }
  }
}

TEST(Activations, AreAsManyAsThePapersSay) {
  using Counts = std::vector<std::int64_t>;
  const auto kept = [](const char* name) {
    return draw_staircase(make_schedule(name, {.stages = 4, .microbatches = 8}), 32).activations;
  };
  EXPECT_EQ(kept("gpipe"), (Counts{8, 8, 8, 8}));
  EXPECT_EQ(kept("1f1b"), (Counts{4, 3, 2, 1}));
  EXPECT_EQ(kept("pipedream"), (Counts{4, 3, 2, 1}));
  EXPECT_EQ(kept("2bw"), (Counts{4, 3, 2, 1}));
  EXPECT_EQ(kept("partime"), (Counts{1, 1, 1, 1}));
  EXPECT_EQ(kept("pb"), (Counts{7, 5, 3, 1}));
  EXPECT_EQ(kept("sequential"), (Counts{1, 1, 1, 1}));
  EXPECT_EQ(kept("zb-h1"), (Counts{4, 4, 4, 4}));
}

TEST(Staircase, FindsADeadlock) {
  Schedule schedule = make_schedule("sequential", {.stages = 2});
  std::swap(schedule.workers[0].period[0],
            schedule.workers[0].period[1]);  // backward before forward
  EXPECT_THROW(draw_staircase(schedule, 2), std::logic_error);
}

}  // namespace
}  // namespace millrace::engine
