// Every arm of the GPU benchmark measures something, on a double. Nothing of how fast anything is.
#include "tools/bench/gpu/arms.h"

#include <gtest/gtest.h>

#include "tests/capture/double_stream.h"
#include "tests/gpu/asked_arms.h"

namespace millrace::bench {
namespace {

GpuBench on_a_double() {
  return {.device = {.cuda = false, .index = 0},
          .make_backend = [](c10::Device) { return capture::make_double_stream(false); }};
}

TEST(GpuArms, EachMeasuresItsFigures) {
  expect_all_arms(on_a_double());
}

/// What an arm throws is its answer.
TEST(GpuArms, AnArmThatFailsSaysSo) {
  capture::refuse_recording(true);
  for (const char* arm : {"step", "stages", "processor time", "latency"}) {
    const Json got = answer(on_a_double(), small_question(arm));
    EXPECT_NE(got.value("error", "").find("not permitted"), std::string::npos) << got;
    EXPECT_EQ(got.size(), 1u);
  }
  capture::refuse_recording(false);
}

}  // namespace
}  // namespace millrace::bench
