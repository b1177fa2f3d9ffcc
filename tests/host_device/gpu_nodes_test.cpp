// A step program's kernels for a GPU but for convolutions: on the host device against LibTorch's
// operators in double.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <cmath>

#include "stages/bytes.h"
#include "tests/capture/program/operators.h"
#include "tests/repetitions.h"

namespace millrace::program {
namespace {

Tensors on_gpu(const Operators& of) {
  const Made made = by_program(of, kGpu);
  EXPECT_EQ(left_to_libtorch(made.operations), std::set<std::string>());
  return made.results;
}

class GpuNodes : public testing::TestWithParam<Family> {};

TEST_P(GpuNodes, EqualDoubleOnAnyShape) {
  if (!GetParam().on_gpu) GTEST_SKIP() << "LibTorch does it on a GPU";
  for (int i = 0; i < (is_long() ? 2000 : 100) && !HasFailure(); ++i) {
    SCOPED_TRACE(i);
    Random random{std::uint64_t(i)};
    const Operators any = GetParam().any(random);
    expect_near(on_gpu(any), in_double(any));
  }
}

INSTANTIATE_TEST_SUITE_P(, GpuNodes, testing::ValuesIn(families()),
                         [](const auto& info) { return info.param.name; });

TEST(GpuFunctions, KeepNaNAndInfinitiesAsOnACore) {
  const Tensor x = at::tensor({-200.f, -3.f, -1e-9f, -0.f, 0.f, 2.f, 3.f, 90.f, NAN});
  const float inf = INFINITY;
  const Tensor rows =
      at::tensor({1.f, -inf, 2.f, NAN, 1.f, 2.f, -inf, -inf, -inf, 0.f, 0.f, 50.f}).view({4, 3});
  const Operators softmaxes = {
      [](const Tensors& t) {
        return Tensors{at::_softmax(t[0], -1, false), at::_log_softmax(t[0], -1, false)};
      },
      {rows}};
  for (const Operators& all :
       {functions_of(x, at::ones_like(x)), gradients_of(x, at::ones_like(x)), softmaxes}) {
    const Tensors got = on_gpu(all), wanted = by_program(all, at::kCPU).results;
    for (std::size_t i = 0; i < wanted.size(); ++i)
      EXPECT_TRUE(at::allclose(got[i], wanted[i], 1e-5, 1e-6, true)) << i << got[i] << wanted[i];
  }
}

/// What a mean far from zero leaves of a variance.
TEST(GpuFunctions, GroupNormFarFromZero) {
  Random random(1);
  for (const std::int64_t side : {8, 120}) {
    const Operators norm = {[=](const Tensors& t) {
                              return Tensors{std::get<0>(
                                  at::native_group_norm(t[0], {}, {}, 1, 2, side * side, 2, 1e-5))};
                            },
                            {random.numbers({1, 2, side, side}) + 300}};
    expect_near(on_gpu(norm), in_double(norm), 3e-5);  // the float mean's own rounding
  }
}

TEST(GpuFunctions, EachByteIsTheNearestFloat) {
  const Tensor bytes = at::arange(67 * 101 * 3).to(at::kByte).view({67, 101, 3});
  const Tensor there = bytes.to(kGpu), sample = at::zeros({1, 3, 67, 101}, kGpu);
  Tensor expected;
  stages::sample_of_bytes(bytes, expected);
  Arena arena(kGpu);
  Program program(
      [&] {
        Tensor made = sample;
        stages::sample_of_bytes(there, made);
      },
      arena);
  sample.zero_();
  program.run();
  EXPECT_TRUE(at::equal(sample.cpu(), expected));
  EXPECT_EQ(left_to_libtorch(program.operations()), std::set<std::string>());
}

TEST(GpuFunctions, BytesGoToTheDeviceAndBack) {
  const auto copy = c10::Dispatcher::singleton()
                        .findSchemaOrThrow("millrace::copy_bytes", "")
                        .typed<void(const Tensor&, const Tensor&)>();
  for (const std::int64_t count : {1, 4, 8, 20, 16 * 5000}) {
    const Tensor from = capture::pinned_zeros({count}, at::kByte),
                 back = capture::pinned_zeros({count}, at::kByte);
    const Tensor there = at::zeros({count}, at::TensorOptions(kGpu).dtype(at::kByte));
    Arena arena(kGpu);
    Program program([&] { copy.call(there, from), copy.call(back, there); }, arena);
    at::Tensor(from).random_(1, 255);
    program.run();
    there.cpu();  // waits
    EXPECT_TRUE(at::equal(back, from)) << count;
    EXPECT_EQ(left_to_libtorch(program.operations()), std::set<std::string>());
  }
}

TEST(GpuFunctions, UpdateAsInDouble) {
  expect_updates_as_in_double(kGpu);
}

TEST(GpuFunctions, NetsLearnAsOnACore) {
  for (const LayeredNet& net : layered_nets())
    EXPECT_EQ(learn_as_eagerly(net.layers, kGpu), net.left) << net.name;
}

}  // namespace
}  // namespace millrace::program
