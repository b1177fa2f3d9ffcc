#include "engine/plan/stage_costs.h"

#include <gtest/gtest.h>

#include <stdexcept>  // refusals

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

TEST(StageCosts, AddUpModules) {
  const std::vector<StageCosts> stages = stage_costs(profile_of_three(), {2});
  ASSERT_EQ(stages.size(), 2u);
  // The first module has no input gradient; what crosses the cut is the last one's.
  EXPECT_EQ(stages[0], (StageCosts{{3, 20, 300, 3000}, {2, 20, 300, 3000, 30000}}));
  EXPECT_EQ(stages[1], (StageCosts{{3, 30, 300, 3000}, {3, 30, 300, 3000, 30000}}));
  EXPECT_EQ(stage_costs(profile_of_three(), {}).size(), 1u);
}

TEST(StageCosts, RefuseAnEmptyStage) {
  for (const std::vector<int>& cut : {std::vector<int>{0}, {3}, {2, 2}, {2, 1}, {-1}})
    EXPECT_THROW(stage_costs(profile_of_three(), cut), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::engine::plan
