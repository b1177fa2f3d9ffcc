// Each arm of the GPU benchmark runs on a CUDA device. Nothing of how fast anything is.
#include "tests/gpu/asked_arms.h"

namespace millrace::bench {
namespace {

TEST(BenchOnDevice, EachArmMeasures) {
  expect_all_arms({});
}

}  // namespace
}  // namespace millrace::bench
