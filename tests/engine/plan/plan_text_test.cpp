#include "engine/plan/plan.h"

#include <gtest/gtest.h>

namespace millrace::engine::plan {
namespace {

Profile small() {
  Profile profile;
  profile.network = "small";
  for (int i = 0; i < 4; ++i) {
    ModuleProfile module;
    module.name = i % 2 == 0 ? "conv" : "relu";
    module.forward.median = i % 2 == 0 ? 4 : 1;
    module.weight_gradient.median = i % 2 == 0 ? 6 : 1;
    module.bytes = {1e6, 1e6, i == 0 ? 2e6 : 1e5, 0, 3e6};
    profile.modules.push_back(module);
  }
  return profile;
}

TEST(PlanText, SaysPlanWhyNextBestAndWhatToExpect) {
  const Profile profile = small();
  const Request request{.machine = {.levels = {{2, {0.1, 1e6}}}, .memory_bytes = 2e7},
                        .schedules = {"partime", "pipedream"},
                        .fps = 50};
  const std::string text = plan_text(profile, request, make_plan(profile, request));
  EXPECT_EQ(text, R"(network   small, 4 modules, on 2 devices
plan      partime, 2 stages, cut [2]
stage modules    replicas threads    work   agree  arrive   leave  period ms    memory versions samples  age
0     0-1               1       1  12.000   0.000   0.000   2.200     14.200   10.2 MB        1       1    2  conv  <- slowest
1     2-3               1       1  12.000   0.000   2.200   0.000     14.200    6.4 MB        1       1    0  conv
why       stage 0 sets the pace, by its work: 12.000 of 14.200 ms a sample; T over its 2 places is 12.000 ms
next best cut [1]: slowest stage 16.200 ms, +14.1 %
other     pipedream, 2 stages: 70.42 frames a second (+0.0 %), latency 19.2 ms, memory 18.3 MB
expect    70.42 frames a second, latency 19.2 ms, at most 10.2 MB a device of 20 MB, gradients up to 2 frames old
real time HOLDS: a frame every 14.200 ms <= 1/F 20.000 ms at 50 frames a second; T/N 12.000 ms < 1/F
)");
}

TEST(PlanText, IsAPipelineTable) {
  const Machine machine{.levels = {{3, {}}}};
  Plan plan;
  plan.method = {.schedule = "2bw", .microbatches = 8, .recompute = true};
  plan.cut.stages = {{0, 5, 0, 2, 1}, {5, 7, 2, 1, 1}};
  EXPECT_EQ(pipeline_toml(plan, machine, "cuda"),
            "[pipeline]\n"
            "schedule = \"2bw\"\n"
            "stages = 2\n"
            "cut = [5]\n"
            "devices = [\"cuda:0\", \"cuda:1\", \"cuda:2\"]\n"
            "microbatches = 8\n"
            "replicas = [2, 1]  # planned only: run has no replicas of this schedule\n"
            "recompute = true\n");
}

TEST(PlanText, GivesCopiesAsReplicasAndLeavesTheLastOfEqualDevicesIdle) {
  const auto has = [](const Method& method, const std::vector<Stage>& stages,
                      const std::vector<std::string>& parts) {
    Plan plan;
    plan.method = method;
    plan.cut.stages = stages;
    const std::string text = pipeline_toml(plan, {.levels = {{4, {}}}}, "cpu");
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has({.schedule = "1f1b", .microbatches = 4, .copies = 2}, {{0, 5, 0, 1, 1}, {5, 7, 1, 1, 1}},
      {"devices = [\"cpu:0\", \"cpu:2\", \"cpu:1\", \"cpu:3\"]\n", "microbatches = 8\n",
       "replicas = [2, 2]"});
  has({.schedule = "pipedream"}, {{0, 5, 1, 2, 1}, {5, 7, 3, 1, 1}},
      {"devices = [\"cpu:0\", \"cpu:1\", \"cpu:2\"]\n", "replicas = [2, 1]\n"});
}

TEST(PlanText, SaysBytesAsSold) {
  for (const auto& [bytes, text] :
       {std::pair(0.0, "0 B"), {999, "999 B"}, {1000, "1 kB"}, {3.1e9, "3.1 GB"}})
    EXPECT_EQ(bytes_text(bytes), text);
}

}  // namespace
}  // namespace millrace::engine::plan
