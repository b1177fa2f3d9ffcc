// A schedule of a stranger's: one generator and one entry in the table, and everything that reads
// schedules takes it.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/schedule/registry.h"
#include "engine/simulate/simulator.h"
#include "engine/simulate/timeline.h"
#include "tests/engine/trained.h"

namespace millrace::engine {
namespace {

// pipedream without stashed weights: one forward, one backward, no flush, updates in place. With 2
// stages:
//
//   stage 0   F0 F1 .  B0 U F2 B1 U .  B2 U
//   stage 1   .  F0 B0 U F1 B1 U F2 B2 U .
Schedule generate(const ScheduleSpec& spec) {
  Schedule schedule{.stages = spec.stages, .in_flight = spec.stages + 1};
  for (int stage = 0; stage < spec.stages; ++stage) {
    const std::int64_t warm_up = spec.stages - 1 - stage;
    Program program;
    for (std::int64_t m = 0; m < warm_up; ++m)
      program.prologue.push_back({Op::forward, stage, m, m});
    program.period = {{Op::forward, stage, warm_up, warm_up},
                      {Op::backward, stage, 0, 0},
                      {Op::update, stage, 0, 0}};
    schedule.workers.push_back(program);
  }
  return schedule;
}

const ScheduleEntry kEntry{
    .name = "toy",
    .summary = "pipedream without stashed weights",
    .generate = generate,
    .samples_kept = [](int depth, int, int) { return depth; },
};

/// Registered once, whichever test comes first.
Schedule toy(int stages) {
  static const bool registered = (register_schedule(kEntry), true);
  EXPECT_TRUE(registered);
  return make_schedule("toy", {.stages = stages});
}

TEST(AScheduleOfOnesOwn, HasANameAndIsProven) {
  for (const int stages : {1, 2, 4, 8}) {
    const auto fault = verify(toy(stages));
    EXPECT_FALSE(fault) << fault->text("toy");
  }
  const std::vector<std::string> names = schedule_names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "toy"), 1);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(gradient_ages(toy(3)), (std::vector<std::int64_t>{2, 1, 0}));
}

TEST(AScheduleOfOnesOwn, IsDrawnAndSimulatedAlike) {
  const Schedule schedule = toy(2);
  const Staircase staircase = draw_staircase(schedule, 3);
  std::string text;
  for (const auto& row : staircase.rows) {
    for (const auto& cell : row) text += cell ? action_text(cell->action, false) + " " : ". ";
  }
  EXPECT_EQ(text, "F0 F1 . B0 F2 B1 . B2 . F0 B0 F1 B1 F2 B2 . ");
  EXPECT_EQ(staircase.activations[0], kEntry.samples_kept(2, 2, 1));
  const std::vector<plan::StageCosts> costs(2, {{.forward = 1, .weight_gradient = 1}, {}});
  EXPECT_EQ(simulate(schedule, {.samples = 3, .stages = costs}).total_ms,
            double(staircase.rows[0].size()));
}

TEST(AScheduleOfOnesOwn, IsRunAsTheOracleSays) {
  for (const std::vector<int>& cut : {std::vector<int>{4}, {2, 4, 6}}) {
    toy(1);
    const TrainerOptions options = small("toy", int(cut.size()) + 1, cut);
    expect_equal(by_pipeline(options, 100), by_oracle(options, 100));
  }
}

}  // namespace
}  // namespace millrace::engine
