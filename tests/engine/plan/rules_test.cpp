#include "engine/plan/rules.h"

#include <gtest/gtest.h>

#include <stdexcept>  // std::invalid_argument

#include "engine/schedule/staircase.h"

namespace millrace::engine::plan {
namespace {

TEST(Rules, KeepWhatTheSchedulesKeep) {
  for (const std::string name :
       {"sequential", "partime", "pb", "pipedream", "2bw", "gpipe", "1f1b"}) {
    for (const int microbatches : {4, 8}) {
      SCOPED_TRACE(name);
      const Schedule schedule = make_schedule(name, {.stages = 4, .microbatches = microbatches});
      const Staircase staircase = draw_staircase(schedule, 64);
      for (int stage = 0; stage < 4; ++stage) {
        EXPECT_EQ(samples_kept(name, 4 - stage, microbatches), staircase.activations[stage]);
        EXPECT_EQ(versions_kept(name, 4 - stage), schedule.versions_of(stage));
      }
      EXPECT_EQ(rule_of(name).minibatches, schedule.group > 1);
      EXPECT_EQ(rule_of(name).flushes, flushes(schedule));
    }
  }
}

TEST(Rules, OfInterleavedCountChunks) {
  for (const int microbatches : {4, 8, 16}) {
    const Schedule schedule = make_schedule(
        "interleaved", {.stages = 8, .microbatches = microbatches, .virtual_stages = 2});
    const Staircase staircase = draw_staircase(schedule, 2 * microbatches);
    // A worker's chunks are at their most at different times: their sum bounds what is kept at
    // once.
    for (int worker = 0; worker < 4; ++worker) {
      EXPECT_LE(chunks_kept(worker, 4, 2, microbatches),
                staircase.activations[worker] + staircase.activations[worker + 4]);
    }
  }
}

TEST(Rules, CoverEverySchedule) {
  for (const std::string& name : schedule_names()) EXPECT_NO_THROW(rule_of(name)) << name;
  EXPECT_THROW(rule_of("nosuch"), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::engine::plan
