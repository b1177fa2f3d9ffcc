#include "engine/schedule/registry.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "engine/plan/outcome.h"
#include "engine/schedule/staircase.h"

namespace millrace::engine {
namespace {

TEST(ScheduleTable, CountsWhatTheSchedulesKeep) {
  for (const std::string name :
       {"sequential", "partime", "pb", "pipedream", "2bw", "gpipe", "1f1b", "zb-h1"}) {
    for (const int microbatches : {4, 8}) {
      SCOPED_TRACE(name);
      const ScheduleEntry& entry = schedule_entry(name);
      const Schedule schedule = make_schedule(name, {.stages = 4, .microbatches = microbatches});
      const Staircase staircase = draw_staircase(schedule, 64);
      for (int stage = 0; stage < 4; ++stage) {
        EXPECT_EQ(entry.samples_kept(4 - stage, 4, microbatches), staircase.activations[stage]);
        EXPECT_EQ(entry.versions_kept(4 - stage), schedule.versions_of(stage));
      }
      EXPECT_EQ(entry.minibatches, schedule.group > 1);
      EXPECT_EQ(entry.flushes, flushes(schedule));
    }
  }
}

TEST(ScheduleTable, ChunksOfInterleavedAreNoMoreThanItKeeps) {
  for (const int microbatches : {4, 8, 16}) {
    const Schedule schedule = make_schedule(
        "interleaved", {.stages = 8, .microbatches = microbatches, .virtual_stages = 2});
    const Staircase staircase = draw_staircase(schedule, 2 * microbatches);
    // A worker's chunks are at their most at different times: their sum bounds what is kept at
    // once.
    for (int worker = 0; worker < 4; ++worker) {
      EXPECT_LE(plan::chunks_kept(worker, 4, 2, microbatches),
                staircase.activations[worker] + staircase.activations[worker + 4]);
    }
  }
}

TEST(ScheduleTable, HoldsEachNameOnce) {
  for (const ScheduleEntry& entry : schedule_table()) {
    EXPECT_STREQ(schedule_entry(entry.name).summary, entry.summary);
    EXPECT_THROW(register_schedule(entry), std::invalid_argument) << entry.name;
  }
  EXPECT_THROW(schedule_entry("nosuch"), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::engine
