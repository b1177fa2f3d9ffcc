#include "engine/trainer/profiler.h"

#include "engine/schedule/registry.h"
#include "tests/engine/tiny.h"

namespace millrace::engine {
namespace {

TrainerOptions options_of(const std::string& schedule, std::vector<int> cut) {
  const int stages = int(cut.size()) + 1;
  TrainerOptions options = tiny(stages, std::move(cut));
  options.schedule = schedule;
  options.weights = stages::initial_state(*options.network, 0);
  return options;
}

TEST(StageProfiler, MeasuresEveryPartThatTheScheduleHas) {
  for (const std::string& name : schedule_names()) {
    SCOPED_TRACE(name);
    const auto costs = measure_stages(options_of(name, {2, 4, 5}), 0.001);
    ASSERT_EQ(costs.size(), 4u);
    for (std::size_t i = 0; i < costs.size(); ++i) {
      EXPECT_GT(costs[i].ms.forward, 0);
      EXPECT_GT(costs[i].ms.weight_gradient, 0);
      EXPECT_GT(costs[i].ms.update, 0);
      EXPECT_EQ(costs[i].ms.input_gradient > 0, name == "zb-h1");
    }
    EXPECT_EQ(costs[0].bytes.activation, 4 * 8 * 8 * 4);
    EXPECT_EQ(costs[0].bytes.gradient, 4 * 8 * 8 * 4);
    EXPECT_GE(costs[0].bytes.weight, (4 * 3 * 3 * 3 + 4) * 4);
    EXPECT_EQ(costs[3].bytes.weight, 0);  // a sigmoid
  }
}

TEST(StageProfiler, RefusesReplicas) {
  TrainerOptions options = options_of("pipedream", {2});
  options.replicas = {2, 1};
  EXPECT_THROW(measure_stages(options, 0.001), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::engine
