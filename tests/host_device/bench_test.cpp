// Each arm of the GPU benchmark runs on a CUDA device: PyTorch's replay and eager training among
// them. Nothing of how fast anything is.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tools/bench/gpu/gpu_arm.h"

namespace millrace::bench {
namespace {

TEST(BenchOnDevice, EachArmMeasures) {
  GpuBench how;
  how.networks = {"basic"};
  how.sizes = {8};
  how.stages = {2};
  how.turns = how.network_turns = 1;
  how.seconds = 0.02;
  const nlohmann::ordered_json results = gpu_results(how);
  int arms = 0;
  for (const auto& [list, entries] : results.items()) {
    if (!entries.is_array()) continue;
    for (const auto& entry : entries) {
      EXPECT_FALSE(entry.contains("error")) << entry;
      EXPECT_GT(entry.value("ratio", 0.0), 0) << entry;
      ++arms;
    }
  }
  EXPECT_EQ(arms, 8);
}

}  // namespace
}  // namespace millrace::bench
