#include "tests/capture/operator_tape.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include <torch/csrc/autograd/autograd.h>

namespace millrace::capture {
namespace {

TEST(OperatorTape, LeavesOutWhatTheHostWouldDoByNow) {
  at::Tensor x = at::full({3}, 1.0), sum = at::zeros({3});
  double times = 2;
  const OperatorTape tape([&] { sum.add_(x * times); });
  times = 100;
  sum.zero_();
  tape.replay();
  tape.replay();
  EXPECT_TRUE(at::equal(sum, at::full({3}, 4.0)));
}

TEST(OperatorTape, RefusesWhatAsksTheHost) {
  const at::Tensor x = at::ones({});
  EXPECT_THROW(OperatorTape([&] { (void)(x + 1).item<float>(); }), std::runtime_error);
  EXPECT_THROW(OperatorTape([&] { (void)at::equal(x, x); }), std::runtime_error);
}

/// As a pool's: another piece's by now.
TEST(OperatorTape, MemoryThatNobodyHoldsIsSpoilt) {
  const at::Tensor x = at::ones({2});
  at::Tensor held;
  const float *temporary = nullptr, *kept = nullptr;
  const OperatorTape tape([&] {
    const at::Tensor twice = x * 2;
    temporary = twice.const_data_ptr<float>();
    held = twice + 1;
    kept = held.const_data_ptr<float>();
  });
  EXPECT_TRUE(std::isnan(*kept)) << "recording does not compute";
  tape.replay();
  EXPECT_EQ(*kept, 3);
  EXPECT_TRUE(std::isnan(*temporary));
}

}  // namespace
}  // namespace millrace::capture
