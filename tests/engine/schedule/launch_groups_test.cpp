#include "engine/schedule/launch_groups.h"

#include <gtest/gtest.h>

#include "engine/schedule/registry.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/verifier.h"

namespace millrace::engine {
namespace {

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
      std::int64_t actions = 0;
      EXPECT_TRUE(walk_groups(schedule, longest_launch_groups(schedule), 10 * schedule.slots(),
                              [&](int, const Action&) { ++actions; })
                      .ended)
          << name << " " << stages;
      EXPECT_GT(actions, 10 * schedule.slots());
    }
  }
}

}  // namespace
}  // namespace millrace::engine
