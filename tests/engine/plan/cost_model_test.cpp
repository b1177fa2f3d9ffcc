#include "engine/plan/cost_model.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "engine/plan/machine.h"

namespace millrace::engine::plan {
namespace {

Profile profile_of_three() {
  Profile profile;
  for (int i = 0; i < 3; ++i) {
    const double x = i + 1;
    profile.modules.push_back({.name = "m" + std::to_string(i),
                               .forward = {x},
                               .input_gradient = {10 * x},
                               .weight_gradient = {100 * x},
                               .update = {1000 * x},
                               .bytes = {x, 10 * x, 100 * x, 1000 * x, 10000 * x}});
  }
  return profile;
}

TEST(StageCosts, RefuseAnEmptyStage) {
  for (const std::vector<int>& cut : {std::vector<int>{0}, {3}, {2, 2}, {2, 1}, {-1}})
    EXPECT_THROW(stage_costs(profile_of_three(), cut), std::invalid_argument);
}

/// Modules 1 and 2 are a pair that can be shared.
Profile profile_of_a_pair() {
  Profile profile = profile_of_three();
  for (int i : {1, 2}) profile.modules[std::size_t(i)].tensor_ways = 4;
  profile.modules[1].tensor_gradient_bytes = 6;
  profile.modules[2].tensor_bytes = 8;
  return profile;
}

TEST(SharedModules, CostWhatWasMeasuredOfThem) {
  Profile profile = profile_of_a_pair();
  profile.modules[2].parts[2] = {1.75, 16, 160, 1600};  // a gain of less than half
  const Machine machine{.levels = {{4, {100, 1}}}, .sums = Link{0.5, 4}};
  const Profile two = shared_by(profile, 2, machine), four = shared_by(profile, 4, machine);
  EXPECT_DOUBLE_EQ(two.modules[2].forward.median, 1.75 + 0.5 + 8.0 / 4);
  EXPECT_DOUBLE_EQ(two.modules[2].input_gradient.median, 16);
  EXPECT_DOUBLE_EQ(two.modules[1].input_gradient.median, 20.0 / 2 + 0.5 + 6.0 / 4);
  EXPECT_DOUBLE_EQ(four.modules[2].forward.median, 1.75 / 2 + 0.5 + 3 * 8.0 / 4);
  // Before an update a stage's ranks agree whether its gradient is finite.
  EXPECT_DOUBLE_EQ(two.agree_ms, 0.5 + 4.0 / 4);
  const double update = stage_costs(profile_of_three(), {2})[0].ms.update;
  const double shared = two.modules[0].update.median + two.modules[1].update.median;
  EXPECT_LT(shared, update);
  EXPECT_DOUBLE_EQ(stage_costs(two, {2})[0].ms.update, shared + two.agree_ms);
  EXPECT_EQ(shared_by(profile, 1, machine), profile);
}

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
  for (const char* devices :
       {"", "0", "2x", "x2", "-1", "2.5", "a", "100x100", "4 ", "99999999999999999999"}) {
    EXPECT_THROW(parse_machine(devices, "", "none", 0, {}), std::invalid_argument) << devices;
  }
  for (const char* links : {"-1", "1:2:3", "fast", "1,2", "nan", "1,"}) {
    EXPECT_THROW(parse_machine("4", links, "none", 0, {}), std::invalid_argument) << links;
  }
  EXPECT_THROW(parse_machine("4", "", "some", 0, {}), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::engine::plan
