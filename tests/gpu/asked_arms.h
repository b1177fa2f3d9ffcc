// Asks the GPU benchmark for each of its arms.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/bench/gpu/arms.h"

namespace millrace::bench {

using Json = nlohmann::ordered_json;

inline Json small_question(const std::string& arm) {
  return {{"arm", arm},    {"network", {{"layers", 3}, {"features", 4}, {"kernel", 3}}},
          {"width", 12},   {"height", 8},
          {"stages", 2},   {"precision", "float32"},
          {"seconds", .02}, {"turns", 2}};
}

inline void expect_figures(const GpuBench& how, const std::string& arm,
                           const std::vector<std::string>& names) {
  SCOPED_TRACE(arm);
  const Json got = answer(how, small_question(arm));
  ASSERT_FALSE(got.contains("error")) << got;
  for (const std::string& name : names) {
    EXPECT_GT(got.at(name).get<double>(), 0) << name;
    EXPECT_TRUE(std::isfinite(got[name].get<double>())) << name;
    EXPECT_EQ(got["turns"].at(name).size(), 2u) << name;
  }
}

inline void expect_all_arms(const GpuBench& how) {
  expect_figures(how, "step", {"engine_ms", "step_ms", "ratio"});
  expect_figures(how, "stages", {"staged_fps", "one_fps", "ratio"});
  expect_figures(how, "processor time", {"engine_us", "launch_us", "ratio"});
  expect_figures(how, "latency", {"engine_ms", "bare_ms", "tail", "ratio"});
  expect_figures(how, "profile", {"modules_ms", "step_ms", "ratio"});
  const Json kernels = answer(how, small_question("kernels"));
  ASSERT_GT(kernels.at("operations").size(), 5u) << kernels;
  double flops = 0;
  for (const Json& operation : kernels["operations"]) {
    EXPECT_GT(operation.at("us").get<double>(), 0) << operation;
    EXPECT_GT(operation.at("bytes").get<double>(), 0) << operation;
    flops += operation.at("flops").get<double>();
  }
  EXPECT_GT(flops, 0);
}

}  // namespace millrace::bench
