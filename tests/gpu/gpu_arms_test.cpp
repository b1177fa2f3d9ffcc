// Every arm of the GPU benchmark measures something, on a double. Nothing of how fast anything is.
#include "tools/bench/gpu/gpu_arm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/capture/double_stream.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

GpuBench small_bench() {
  GpuBench how;
  how.device = {.cuda = false, .index = 0};
  how.make_backend = [](c10::Device) { return capture::make_double_stream(false); };
  how.networks = {"basic", "kernel"};
  how.sizes = {8};
  how.stages = {1, 2};
  how.turns = 2;
  how.network_turns = 1;
  how.seconds = 0.02;
  return how;
}

void expect_figures(const Json& results, const char* list, std::size_t entries,
                    const std::vector<std::string>& names) {
  SCOPED_TRACE(list);
  ASSERT_EQ(results.at(list).size(), entries);
  for (const Json& entry : results[list]) {
    ASSERT_FALSE(entry.contains("error")) << entry;
    EXPECT_EQ(entry["turns"].size(), names.size());
    for (const std::string& name : names) {
      EXPECT_GT(entry[name].get<double>(), 0) << name;
      EXPECT_TRUE(std::isfinite(entry[name].get<double>())) << name;
      EXPECT_GE(entry["turns"][name].size(), 1u);
    }
  }
}

TEST(GpuArms, EachMeasuresItsFigures) {
  GpuBench how = small_bench();
  std::vector<std::string> begun;
  std::size_t kept = 0;
  how.progress = [&](const std::string& arm) { begun.push_back(arm); };
  how.keep = [&](const Json&) { ++kept; };
  const Json results = gpu_results(how);
  expect_figures(results, "stages", 2, {"graph_fps", "eager_fps", "ratio"});
  expect_figures(results, "bytes", 1, {"floats_fps", "bytes_fps", "ratio"});
  expect_figures(results, "relaunch", 1,
                 {"engine_ms", "bare_ms", "replay_ms", "bare_ratio", "ratio"});
  expect_figures(results, "independent", 1, {"engine_fps", "bare_fps", "ratio"});
  expect_figures(results, "processor_time", 1, {"engine_us", "bare_us", "ratio"});
  expect_figures(results, "latency", 2, {"engine_ms", "tail", "bare_ms", "step_ms", "ratio"});
  expect_figures(results, "networks", 2,
                 {"graph_fps", "eager_fps", "staged_fps", "ratio", "staged_ratio"});
  for (const Json& entry : results["networks"])
    EXPECT_LT(entry["staged_ratio"].get<double>(), 40) << "samples told of together were counted";
  EXPECT_EQ(begun.size(), 10u);
  EXPECT_EQ(kept, 10u);
  EXPECT_TRUE(results["provenance"].contains("libtorch"));
  EXPECT_EQ(results["independent"][0]["stages"], 4);
}

/// What an arm throws is its entry's, and the others are measured all the same.
TEST(GpuArms, AnArmThatFailsSaysSo) {
  GpuBench how = small_bench();
  how.networks = {"basic"};
  how.stages = {1};
  capture::refuse_recording(true);
  const Json results = gpu_results(how);
  capture::refuse_recording(false);
  for (const char* list : {"stages", "relaunch", "processor_time", "latency", "networks"}) {
    const Json& entry = results.at(list).at(0);
    EXPECT_NE(entry.value("error", "").find("not permitted"), std::string::npos) << entry;
    EXPECT_FALSE(entry.contains("ratio"));
    EXPECT_EQ(entry["network"], "basic");
  }
}

/// Gives 1, 2, 3, ... for one way and twice that for the other; throws in turn `fails`.
GpuArm counting(int fails) {
  const auto turn = std::make_shared<int>(0);
  const auto a = [=](double) {
    if (++*turn == fails) throw std::runtime_error("no room\nat some place");
    return double(*turn);
  };
  return {{{"a", a}, {"b", [=](double) { return 2.0 * *turn; }}}, {{"ratio", "b", "a"}}};
}

TEST(GpuArms, TurnsAreKeptWithTheirMedians) {
  GpuBench how = small_bench();
  how.seconds = 60;  // so that no turn is left out
  const auto arm = [](int fails) { return [=] { return counting(fails); }; };
  const Json entry = measured(how, {{"arm", "counting"}}, 3, arm(0));
  EXPECT_EQ(entry, Json::parse(R"({"arm": "counting", "a": 2.0, "b": 4.0, "ratio": 2.0,
      "turns": {"a": [1.0, 2.0, 3.0], "b": [2.0, 4.0, 6.0], "ratio": [2.0, 2.0, 2.0]}})"));
  EXPECT_EQ(measured(how, {{"arm", "counting"}}, 3, arm(2)),
            Json({{"arm", "counting"}, {"error", "no room"}}));
  how.seconds = 0;  // any turn takes too long
  EXPECT_EQ(measured(how, {{"arm", "counting"}}, 3, arm(0))["turns"]["a"].size(), 1u);
}

}  // namespace
}  // namespace millrace::bench
