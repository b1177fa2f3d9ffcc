#include <gtest/gtest.h>

#include "engine/schedule/registry.h"
#include "engine/simulate/timeline.h"

namespace millrace::engine {
namespace {

Simulation simulated(const Schedule& schedule, std::int64_t samples, double handoff_ms = 0) {
  SimulationInput input{
      .samples = samples,
      .stages = std::vector<plan::StageCosts>(schedule.stages, {{1, 0.5, 0.5, 0}}),
      .events = true};
  input.machine.levels.front().link.latency_ms = handoff_ms;
  return simulate(schedule, input);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST(TimelineSvg, HasABoxAnActionAndNamesThem) {
  const Schedule schedule = make_schedule("gpipe", {.stages = 2, .microbatches = 2});
  const std::string svg = timeline_svg(schedule, simulated(schedule, 2));
  // A box each and one in the legend; updates take no time and are as thin as can be.
  EXPECT_EQ(count(svg, "class=\"F\""), 4 + 1);
  EXPECT_EQ(count(svg, "class=\"B\""), 4 + 1);
  EXPECT_EQ(count(svg, "class=\"U\""), 2 + 1);
  EXPECT_EQ(count(svg, "class=\"H\""), 0);
  EXPECT_EQ(count(svg, ">F1<"), 2);
  EXPECT_EQ(count(svg, ">66.7 %<"), 2);
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(count(svg, "<svg "), 1);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(TimelineSvg, SaysWhatItLeavesOut) {
  const Schedule schedule = make_schedule("partime", {.stages = 70});
  const std::string svg = timeline_svg(schedule, simulated(schedule, 300, 0.1));
  EXPECT_NE(svg.find("first 64 of 70 workers, first "), std::string::npos);
  EXPECT_EQ(count(svg, "class=\"F\"") + count(svg, "class=\"B\"") + count(svg, "class=\"U\""),
            20'000 + 3);
  EXPECT_GT(count(svg, "class=\"H\""), 10);
}

TEST(TimelineSvg, EndsWhenItShouldAndItsTitleMayHoldAnything) {
  const Schedule schedule = make_schedule("gpipe", {.stages = 1, .microbatches = 8});
  const std::string svg = timeline_svg(schedule, simulated(schedule, 8), "<a&b>\n\xff", 3.5);
  EXPECT_EQ(count(svg, "class=\"F\""), 4 + 1);
  EXPECT_NE(svg.find("first 3.5 of 16 ms"), std::string::npos);
  EXPECT_NE(svg.find("&lt;a&amp;b&gt;??"), std::string::npos);
}

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

TEST(Staircase, HasACellAnActionAndItsUpdate) {
  EXPECT_EQ(drawn(make_schedule("partime", {.stages = 2}), 4),
            "F0 F1 F2 B2(0)U F3 B3(1)U . . .\n"
            ". F0 B0U F1 B1U F2 B2U F3 B3U\n");
  EXPECT_EQ(drawn(make_schedule("pipedream", {.stages = 2, .replicas = {2, 1}}), 4),
            "F0^0 F2^0 . B0U . . . B2U . .\n"
            "F1^0 F3^0 . . . B1U . . . B3U\n"
            ". F0^0 B0U F1^1 B1U F2^2 B2U F3^3 B3U .\n");
  EXPECT_EQ(drawn(make_schedule("gpipe", {.stages = 2, .microbatches = 3}), 2), "\n\n");
}

}  // namespace
}  // namespace millrace::engine
