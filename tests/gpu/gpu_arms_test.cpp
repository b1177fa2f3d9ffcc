// Every arm of the GPU benchmark returns figures, on a double or a CUDA device. Ignores speed.
#include "tools/bench/gpu/arms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/capture/double_stream.h"
#include "tests/engine/recording_place.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

Json ask(const std::string& arm) {
  const bool cuda = engine::device_there().is_cuda();
  GpuBench how{.device = {.cuda = cuda, .index = 0}};
  if (!cuda) how.make_backend = [](c10::Device) { return capture::make_double_stream(false); };
  return answer(how, {{"arm", arm},
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

/// An arm's exception is its answer.
TEST(GpuArms, OnADoubleAnArmThatFailsSaysSo) {
  capture::refuse_recording(true);
  for (const char* arm : {"step", "stages", "processor time", "latency"}) {
    const Json got = ask(arm);
    EXPECT_NE(got.value("error", "").find("not permitted"), std::string::npos) << got;
    EXPECT_EQ(got.size(), 1u);
  }
  capture::refuse_recording(false);
}

}  // namespace
}  // namespace millrace::bench
