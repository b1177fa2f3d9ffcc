// Every arm of the GPU benchmark measures something. Nothing of how fast anything is.
#include "tools/bench/gpu/arms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/host_device/host_device.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

Json ask(const std::string& arm) {
  return answer({{"arm", arm},
                 {"network", {{"layers", 3}, {"features", 4}, {"kernel", 3}}},
                 {"width", 12},
                 {"height", 8},
                 {"stages", 2},
                 {"precision", "float32"},
                 {"seconds", .02},
                 {"turns", 2}});
}

TEST(GpuArms, EachMeasuresItsFigures) {
  const std::map<std::string, std::vector<std::string>> figures = {
      {"step", {"engine_ms", "step_ms", "ratio"}},
      {"stages", {"staged_fps", "one_fps", "ratio"}},
      {"processor time", {"engine_us", "launch_us", "ratio"}},
      {"latency", {"engine_ms", "bare_ms", "tail", "bare_tail", "ratio"}},
      {"profile", {"modules_ms", "step_ms", "ratio"}}};
  for (const auto& [arm, names] : figures) {
    SCOPED_TRACE(arm);
    const Json got = ask(arm);
    ASSERT_FALSE(got.contains("error")) << got;
    for (const std::string& name : names) {
      EXPECT_GT(got.at(name).get<double>(), 0) << name;
      EXPECT_TRUE(std::isfinite(got[name].get<double>())) << name;
      EXPECT_EQ(got["turns"].at(name).size(), 2u) << name;
    }
  }
  const Json kernels = ask("kernels");
  ASSERT_GT(kernels.at("operations").size(), 5u) << kernels;
  double flops = 0;
  for (const Json& operation : kernels["operations"]) {
    EXPECT_GT(operation.at("us").get<double>(), 0) << operation;
    EXPECT_GT(operation.at("bytes").get<double>(), 0) << operation;
    flops += operation.at("flops").get<double>();
  }
  EXPECT_GT(flops, 0);
}

/// What an arm throws is its answer.
TEST(GpuArms, OneThatFailsSaysSo) {
  for (const char* arm : {"step", "stages", "processor time", "latency"}) {
    host_device::fail("cudaStreamBeginCapture", 1, cudaErrorUnknown);
    const Json got = ask(arm);
    EXPECT_NE(got.value("error", "").find("CUDA error"), std::string::npos) << got;
    EXPECT_EQ(got.size(), 1u);
  }
}

}  // namespace
}  // namespace millrace::bench
