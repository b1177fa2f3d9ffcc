#include "engine/plan/machine.h"

#include <gtest/gtest.h>

#include <stdexcept>

namespace millrace::engine::plan {
namespace {

TEST(MachineText, ReadsServersOfDevices) {
  const Machine machine = parse_machine("2x8", "3.125:0.5,30", "all", 16e9, {});
  ASSERT_EQ(machine.levels.size(), 2u);  // innermost first
  EXPECT_EQ(machine.levels[0], (Level{8, {0, 30e6}}));
  EXPECT_EQ(machine.levels[1], (Level{2, {0.5, 3.125e6}}));
  EXPECT_EQ(machine.overlap, Overlap::all);
  EXPECT_EQ(machine.memory_bytes, 16e9);
  EXPECT_EQ(machine.devices(), 16);
}

TEST(MachineText, TakesTheProfilesHandOffs) {
  Profile profile;
  profile.hand_offs = {{"cpu-cpu", {{0, 0.5}, {1000, 1.5}}}};
  EXPECT_EQ(parse_machine("4", "", "none", 0, profile).levels,
            (std::vector<Level>{{4, {0.5, 1000}}}));
  EXPECT_EQ(parse_machine("4", "2", "none", 0, profile).levels,
            (std::vector<Level>{{4, {0, 2e6}}}));
  profile.hand_offs.push_back({kSums, {{4, 0.25}}, {}});
  EXPECT_EQ(parse_machine("4", "", "none", 0, profile).sums, (Link{0.25, 0}));
  EXPECT_FALSE(parse_machine("4", "2", "none", 0, profile).sums) << "of other links";
  EXPECT_EQ(parse_machine("4", "", "none", 0, {}).levels, (std::vector<Level>{{4, {}}}));
}

TEST(MachineText, RefusesWhatIsNone) {
  for (const char* devices : {"", "0", "2x", "x2", "-1", "2.5", "a", "100x100", "4 "}) {
    EXPECT_THROW(parse_machine(devices, "", "none", 0, {}), std::invalid_argument) << devices;
  }
  for (const char* links : {"-1", "1:2:3", "fast", "1,2", "nan", "1,"}) {
    EXPECT_THROW(parse_machine("4", links, "none", 0, {}), std::invalid_argument) << links;
  }
  EXPECT_THROW(parse_machine("4", "", "some", 0, {}), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::engine::plan
