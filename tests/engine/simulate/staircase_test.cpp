#include "engine/simulate/staircase.h"

#include <gtest/gtest.h>

namespace millrace::engine {
namespace {

std::string drawn(const Schedule& schedule, std::int64_t samples) {
  std::string text;
  for (const auto& row : draw_staircase(schedule, samples).rows) {
    for (const auto& cell : row) {
      text += &cell == &row.front() ? "" : " ";
      text += cell ? action_text(cell->action, false) + (cell->updates ? "U" : "") : ".";
    }
    text += '\n';
  }
  return text;
}

TEST(Staircase, OfGpipe) {
  EXPECT_EQ(drawn(make_schedule("gpipe", {.stages = 3, .microbatches = 3}), 3),
            "F0 F1 F2 . . . . B0 B1 B2U\n"
            ". F0 F1 F2 . . B0 B1 B2U .\n"
            ". . F0 F1 F2 B0 B1 B2U . .\n");
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

TEST(Staircase, OfLessThanAMinibatchIsEmpty) {
  EXPECT_EQ(drawn(make_schedule("gpipe", {.stages = 2, .microbatches = 3}), 2), "\n\n");
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

}  // namespace
}  // namespace millrace::engine
