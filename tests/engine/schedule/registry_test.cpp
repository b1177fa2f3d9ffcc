#include "engine/schedule/registry.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace millrace::engine {
namespace {

TEST(ScheduleTable, SaysWhatItsGeneratorsWrite) {
  for (const ScheduleEntry& entry : schedule_table()) {
    const Schedule schedule = make_schedule(entry.name, {.stages = 4, .microbatches = 4});
    EXPECT_EQ(entry.minibatches, schedule.group > 1) << entry.name;
    EXPECT_EQ(entry.flushes, schedule.flushes()) << entry.name;
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
