#include "capture/program/kernels/kernels.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "capture/program/kernels/simd.h"
#include "tests/capture/program/kernels_reference.h"

namespace millrace::kernels {
namespace {

/// Rounding relative to the sum of the terms' magnitudes; a float's unit is 1.2e-7.
constexpr double kBound = 1e-5;

bool is_direct(const std::string& name) {
  return name.find("fft") == name.npos && name.find("winograd") == name.npos;
}

/// A transform's rounding is relative to what is in its square, a direct sum's to its own terms.
void expect_near(const Reference& expected, const std::vector<float>& found, bool direct,
                 const std::string& what) {
  ASSERT_EQ(expected.values.size(), found.size()) << what;
  const double largest = *std::max_element(expected.magnitudes.begin(), expected.magnitudes.end());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double bound = kBound * std::max(direct ? expected.magnitudes[i] : largest, 1e-6);
    ASSERT_NEAR(expected.values[i], found[i], bound) << what << ", element " << i;
  }
}

struct Shape {
  int height, width, in, out, kernel, stride = 1;
  int groups = 1;
  std::optional<TapGrid> window{};
};

std::string words(const Shape& s, const std::string& name) {
  return std::to_string(s.height) + "x" + std::to_string(s.width) + " " + std::to_string(s.in) +
         "->" + std::to_string(s.out) + " k" + std::to_string(s.kernel) + " stride " +
         std::to_string(s.stride) + (s.window ? " window " : " ") + std::to_string(s.groups) +
         " groups by " + name + " with " + instruction_set();
}

Convolution convolution(const Shape& s, Pass pass) {
  Convolution c;
  c.pass = pass;
  c.input = {s.height, s.width, s.in};
  c.kernel = s.kernel;
  c.stride = s.stride;
  c.window = s.window;
  c.groups = s.groups;
  const auto [rows, columns] = window_of(c);
  c.output = {rows.outputs(s.height), columns.outputs(s.width), s.out};
  return c;
}

/// Scratch comes full of NaN, since its contents may be anything.
void run(TestConvolution& memory, const Kernel& kernel, const Convolution& c) {
  TestFloats packed(kernel.packed_floats(), NAN), scratch(kernel.scratch_floats(), NAN);
  TestFloats shared(kernel.shared_floats(1), NAN);
  kernel.pack(memory.weights.data(), packed.data());
  Operands operands = memory.operands(c);
  if (kernel.packed_floats() > 0) operands.packed = packed.data();
  operands.scratch = scratch.data();
  operands.shared = shared.data();
  kernel.run(operands);
}

void check_forward(const Shape& s) {
  Convolution c = convolution(s, Pass::kForward);
  for (const Activation activation : {Activation::kNone, Activation::kRelu, Activation::kSigmoid}) {
    c.activation = activation;
    TestConvolution given(c);
    const Reference expected =
        reference_forward(c, given.x, given.weights.data(), given.bias.data());
    for (const std::string& name : candidates(c)) {
      TestConvolution op(c);
      run(op, *make_kernel(c, name), c);
      expect_near(expected, op.y.values(), is_direct(name), "forward " + words(s, name));
      EXPECT_TRUE(op.y.border_is_untouched()) << words(s, name);
    }
  }
}

void check_data_gradient(const Shape& s) {
  Convolution c = convolution(s, Pass::kDataGradient);
  for (const bool masked : {false, true}) {
    c.masked = masked;
    TestConvolution given(c);
    const Reference expected =
        reference_data_gradient(c, given.dy, given.weights.data(), masked ? &given.mask : nullptr);
    for (const std::string& name : candidates(c)) {
      TestConvolution op(c);
      run(op, *make_kernel(c, name), c);
      expect_near(expected, op.dx.values(), is_direct(name), "data gradient " + words(s, name));
      EXPECT_TRUE(op.dx.border_is_untouched()) << words(s, name);
    }
  }
}

void check_weight_gradient(const Shape& s) {
  Convolution c = convolution(s, Pass::kWeightGradient);
  for (const bool accumulate : {false, true}) {
    c.accumulate = accumulate;
    TestConvolution given(c);
    Reference weights = reference_weight_gradient(c, given.x, given.dy);
    Reference bias = reference_bias_gradient(given.dy);
    for (std::size_t i = 0; i < weights.values.size() && accumulate; ++i)
      weights.values[i] += given.weight_gradient.data()[i];
    for (std::size_t i = 0; i < bias.values.size() && accumulate; ++i)
      bias.values[i] += given.bias_gradient.data()[i];
    for (double& m : weights.magnitudes) m += 1;
    for (double& m : bias.magnitudes) m += 1;
    for (const std::string& name : candidates(c)) {
      TestConvolution op(c);
      run(op, *make_kernel(c, name), c);
      expect_near(weights, copy(op.weight_gradient), is_direct(name),
                  "weight gradient " + words(s, name));
      expect_near(bias, copy(op.bias_gradient), true, "bias gradient " + words(s, name));
    }
  }
}

/// Every kernel size, odd images, images smaller than the kernel, channels beside the vector's
/// width, strides.
std::vector<Shape> shapes() {
  return {{1, 1, 1, 1, 1},
          {1, 1, 16, 16, 5},
          {2, 3, 3, 16, 7},
          {5, 4, 16, 3, 5},
          {7, 9, 16, 16, 3},
          {16, 16, 16, 16, 5},
          {13, 17, 3, 16, 5},
          {13, 17, 16, 3, 5},
          {9, 11, 32, 32, 3},
          {10, 12, 3, 32, 3},
          {10, 12, 32, 3, 3},
          {6, 20, 48, 48, 5},
          {5, 33, 17, 19, 3},
          {12, 10, 5, 7, 3},
          {4, 4, 2, 4, 5},
          {3, 70, 16, 16, 5},
          {70, 3, 16, 16, 3},
          {18, 18, 16, 16, 15},
          {4, 6, 8, 16, 15},
          {9, 8, 16, 16, 1},
          {24, 24, 16, 32, 1},
          {5, 11, 40, 600, 1},
          {3, 20, 512, 33, 1},
          {8, 8, 16, 16, 3, 2},
          {9, 7, 16, 32, 3, 2},
          {11, 12, 3, 16, 7, 2},
          {8, 9, 16, 16, 1, 2},
          {5, 5, 16, 3, 5, 2},
          {7, 10, 3, 3, 5},
          {20, 25, 16, 20, 7},
          {6, 6, 40, 24, 3, 3},
          // Several squares of each transform, some of them partial, and blocks of squares.
          {37, 45, 9, 17, 5},
          {45, 40, 8, 8, 9},
          {45, 50, 2, 3, 15},
          // Few pixels and many weights.
          {2, 2, 64, 70, 3},
          {1, 3, 61, 67, 3},
          {5, 7, 64, 64, 3, 2},
          {4, 4, 130, 256, 1},
          {8, 7, 64, 96, 3, 2},
          {4, 3, 200, 180, 1, 2},
          // Each channel by itself.
          {1, 1, 2, 2, 3, 1, 2},
          {5, 7, 3, 3, 3, 1, 3},
          {6, 4, 20, 20, 5, 2, 20},
          {2, 3, 17, 17, 13, 1, 17},
          {9, 8, 33, 33, 3, 2, 33},
          {1, 6, 5, 5, 5, 3, 5},
          {9, 7, 18, 18, 0, 0, 18, TapGrid{{2, 2, 0, 1}, {3, 1, 2, 2}}},
          // Several channels a group.
          {5, 7, 6, 4, 3, 1, 2},
          {12, 11, 48, 96, 3, 1, 3},
          {9, 8, 40, 40, 5, 2, 5},
          {4, 5, 32, 64, 1, 1, 4},
          {8, 7, 6, 12, 0, 0, 3, TapGrid{{2, 1, 1, 1}, {2, 1, 0, 3}}},
          // Any window.
          {8, 12, 3, 16, 0, 0, 1, TapGrid{{4, 4, 0, 1}, {4, 4, 0, 1}}},
          {9, 11, 20, 7, 0, 0, 1, TapGrid{{2, 2, 0, 1}, {2, 2, 0, 1}}},
          {11, 9, 3, 33, 0, 0, 1, TapGrid{{3, 2, 0, 1}, {3, 2, 0, 1}}},
          {7, 8, 16, 5, 0, 0, 1, TapGrid{{1, 1, 0, 1}, {7, 1, 3, 1}}},
          {10, 9, 17, 18, 0, 0, 1, TapGrid{{3, 1, 4, 4}, {3, 2, 2, 2}}},
          {3, 2, 4, 4, 0, 0, 1, TapGrid{{4, 2, 1, 1}, {4, 2, 1, 1}}}};
}

/// Runs with the instruction sets that this machine and this build have, one after the other.
class EveryInstructionSet : public testing::Test {
 protected:
  template <typename Check>
  void each(const Check& check) {
    const auto all = hwy::SupportedTargets();
    for (auto left = all; left != 0; left &= left - 1) {
      const auto target = left & ~(left - 1);
      if (target & (HWY_SSE4 | HWY_SSSE3)) continue;  // not built
      hwy::GetChosenTarget().Update(target);
      for (const Shape& shape : shapes()) check(shape);
    }
  }
  void TearDown() override { hwy::GetChosenTarget().Update(hwy::SupportedTargets()); }
};

TEST_F(EveryInstructionSet, ForwardIsTheDefinition) {
  each(check_forward);
}
TEST_F(EveryInstructionSet, DataGradientIsTheDefinition) {
  each(check_data_gradient);
}
TEST_F(EveryInstructionSet, WeightGradientIsTheDefinition) {
  each(check_weight_gradient);
}

TEST(Kernels, ANaNInTheInputReachesTheOutputThroughActivations) {
  for (const Activation activation : {Activation::kRelu, Activation::kSigmoid}) {
    Convolution c = convolution({6, 6, 16, 3, 3}, Pass::kForward);
    c.activation = activation;
    for (const std::string& name : candidates(c)) {
      TestConvolution op(c);
      op.x.at(3, 3, 5) = NAN;
      run(op, *make_kernel(c, name), c);
      EXPECT_TRUE(std::isnan(op.y.at(2, 2, 0))) << name;
      // A transform spreads it over its square.
      EXPECT_TRUE(!is_direct(name) || !std::isnan(op.y.at(0, 0, 0))) << name;
    }
  }
}

TEST(Kernels, AChoiceIsByShapeAndMethodAloneAndSuitsThem) {
  if (!has_vectors()) GTEST_SKIP() << "without vectors there is nothing to choose";
  const auto chosen = [](const Shape& s, Pass pass, Method method) {
    Convolution c = convolution(s, pass);
    c.method = method;
    return make_kernel(c)->name();
  };
  const Shape first{64, 64, 3, 48, 5}, last{64, 64, 48, 3, 5}, tiny{4, 4, 48, 3, 5};
  const Shape small{32, 32, 48, 48, 3}, middle{128, 128, 16, 16, 5}, large{32, 32, 16, 16, 15};
  for (int repeat = 0; repeat < 3; ++repeat) {
    EXPECT_EQ(chosen(first, Pass::kForward, Method::kDirect), "wide");
    EXPECT_EQ(chosen(first, Pass::kWeightGradient, Method::kDirect), "plain");
    EXPECT_EQ(chosen(last, Pass::kForward, Method::kDirect), lanes() > 4 ? "narrow" : "wide");
    EXPECT_EQ(chosen(last, Pass::kDataGradient, Method::kDirect), "wide");
    EXPECT_EQ(chosen(last, Pass::kWeightGradient, Method::kDirect), "swapped");
    EXPECT_EQ(chosen(tiny, Pass::kForward, Method::kFast), "wide") << "few pixels save nothing";
    EXPECT_EQ(chosen(small, Pass::kForward, Method::kAccurate), "winograd4x3");
    EXPECT_EQ(chosen(middle, Pass::kDataGradient, Method::kAccurate).substr(0, 3), "fft");
    EXPECT_EQ(chosen({96, 128, 32, 32, 3}, Pass::kForward, Method::kFast), "winograd6x3");
    EXPECT_EQ(chosen(large, Pass::kWeightGradient, Method::kAccurate), "fft30");
  }
}

TEST(Kernels, AnUnknownImplementationAndAnImpossibleShapeAreRefused) {
  Convolution c = convolution({8, 8, 16, 16, 3}, Pass::kForward);
  EXPECT_THROW(make_kernel(c, "nowhere"), std::invalid_argument);
  c.kernel = 4;
  EXPECT_THROW(make_kernel(c), std::invalid_argument);
  c.groups = 3;
  EXPECT_THROW(make_kernel(c), std::invalid_argument);
  c.groups = 1;
  c.kernel = 3;
  c.output.width = 9;
  EXPECT_THROW(make_kernel(c), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::kernels
