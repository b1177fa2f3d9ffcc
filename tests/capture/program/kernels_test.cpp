// Every implementation of every pass against its definition, by threads that share it, and which of
// them is taken.
#include "capture/program/kernels/kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <stdexcept>

#include "capture/program/kernels/internal.h"
#include "tests/capture/program/kernels_reference.h"

namespace millrace::kernels {
namespace {

/// Rounding relative to the sum of the terms' magnitudes; a float's unit is 1.2e-7.
constexpr double kBound = 1e-5;

bool is_direct(const std::string& name) {
  return name.find("fft") == name.npos && name.find("winograd") == name.npos;
}

/// A transform's rounding is relative to what is in its square, a direct sum's to its own terms.
void expect_near(const Reference& expected, const TestFloats& found, bool direct,
                 const std::string& what) {
  ASSERT_EQ(expected.values.size(), found.size()) << what;
  const std::vector<float> values = found.values();
  const double largest = *std::max_element(expected.magnitudes.begin(), expected.magnitudes.end());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double bound = kBound * std::max(direct ? expected.magnitudes[i] : largest, 1e-6);
    ASSERT_NEAR(expected.values[i], values[i], bound) << what << ", element " << i;
  }
}

/// Every kernel size, odd images, images smaller than the kernel, channels beside the vector's
/// width, strides.
// clang-format off
const Shape kShapes[] = {
    {1, 1, 1, 1, 1}, {1, 1, 16, 16, 5}, {2, 3, 3, 16, 7}, {5, 4, 16, 3, 5}, {7, 9, 16, 16, 3},
    {16, 16, 16, 16, 5}, {13, 17, 3, 16, 5}, {13, 17, 16, 3, 5}, {9, 11, 32, 32, 3},
    {10, 12, 3, 32, 3}, {10, 12, 32, 3, 3}, {6, 20, 48, 48, 5}, {5, 33, 17, 19, 3},
    {12, 10, 5, 7, 3}, {4, 4, 2, 4, 5}, {3, 70, 16, 16, 5}, {70, 3, 16, 16, 3},
    {18, 18, 16, 16, 15}, {4, 6, 8, 16, 15}, {9, 8, 16, 16, 1}, {24, 24, 16, 32, 1},
    {5, 11, 40, 600, 1}, {3, 20, 512, 33, 1}, {8, 8, 16, 16, 3, 2}, {9, 7, 16, 32, 3, 2},
    {11, 12, 3, 16, 7, 2}, {8, 9, 16, 16, 1, 2}, {5, 5, 16, 3, 5, 2}, {7, 10, 3, 3, 5},
    {20, 25, 16, 20, 7}, {6, 6, 40, 24, 3, 3},
    // Several squares of each transform, some of them partial, and blocks of squares.
    {37, 45, 9, 17, 5}, {45, 40, 8, 8, 9}, {45, 50, 2, 3, 15},
    // Few pixels and many weights.
    {7, 7, 512, 130, 1}, {1, 50, 96, 160, 1}, {2, 2, 64, 70, 3}, {1, 3, 61, 67, 3},
    {5, 7, 64, 64, 3, 2}, {4, 4, 130, 256, 1}, {8, 7, 64, 96, 3, 2}, {4, 3, 200, 180, 1, 2},
    // Sums in parts, and lines that compete for the cache.
    {20, 30, 700, 40, 1}, {27, 20, 16, 560, 1}, {16, 33, 512, 50, 1},
    // Enough for a bfloat16 kernel to go band by band.
    {20, 40, 32, 32, 5}, {60, 100, 32, 16, 3}, {61, 90, 64, 32, 3, 2}, {50, 120, 48, 48, 1},
    // Each channel by itself.
    {1, 1, 2, 2, 3, 1, 2}, {5, 7, 3, 3, 3, 1, 3}, {6, 4, 20, 20, 5, 2, 20},
    {2, 3, 17, 17, 13, 1, 17}, {9, 8, 33, 33, 3, 2, 33}, {1, 6, 5, 5, 5, 3, 5},
    {9, 7, 18, 18, 0, 0, 18, TapGrid{{2, 2, 0, 1}, {3, 1, 2, 2}}},
    {4, 21, 33, 33, 3, 1, 33}, {5, 26, 16, 16, 3, 2, 16}, {6, 22, 18, 18, 9, 1, 18},
    {3, 30, 20, 20, 0, 0, 20, TapGrid{{2, 1, 1, 2}, {3, 2, 4, 2}}},
    // Several channels a group.
    {9, 8, 64, 64, 3, 2, 2}, {5, 7, 6, 4, 3, 1, 2}, {12, 11, 48, 96, 3, 1, 3},
    {9, 8, 40, 40, 5, 2, 5}, {4, 5, 32, 64, 1, 1, 4},
    {8, 7, 6, 12, 0, 0, 3, TapGrid{{2, 1, 1, 1}, {2, 1, 0, 3}}},
    // Any window.
    {6, 6, 16, 16, 0, 0, 1, TapGrid{{2, 3, 0, 1}, {2, 3, 0, 1}}},
    {8, 12, 3, 16, 0, 0, 1, TapGrid{{4, 4, 0, 1}, {4, 4, 0, 1}}},
    {9, 11, 20, 7, 0, 0, 1, TapGrid{{2, 2, 0, 1}, {2, 2, 0, 1}}},
    {11, 9, 3, 33, 0, 0, 1, TapGrid{{3, 2, 0, 1}, {3, 2, 0, 1}}},
    {7, 8, 16, 5, 0, 0, 1, TapGrid{{1, 1, 0, 1}, {7, 1, 3, 1}}},
    {10, 9, 17, 18, 0, 0, 1, TapGrid{{3, 1, 4, 4}, {3, 2, 2, 2}}},
    {3, 2, 4, 4, 0, 0, 1, TapGrid{{4, 2, 1, 1}, {4, 2, 1, 1}}}};
// clang-format on

class EveryInstructionSet : public testing::TestWithParam<Pass> {};

TEST_P(EveryInstructionSet, IsTheDefinition) {
  for (const Shape& shape : kShapes) {
    for (const Convolution& c : variants(shape, GetParam())) {
      TestConvolution given(c);
      const Reference expected = reference(given), bias = reference_bias_gradient(given);
      each_instruction_set([&] {
        for (const std::string& name : candidates(c)) {
          TestConvolution op(c);
          op.run(name);
          expect_near(expected, op.made, is_direct(name), words(shape) + name);
          if (c.pass == Pass::kWeightGradient)
            expect_near(bias, op.bias_gradient, true, "bias gradient " + words(shape) + name);
        }
      });
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Passes, EveryInstructionSet, testing::ValuesIn(kPasses));

TEST(Kernels, ANaNInTheInputReachesTheOutputThroughActivations) {
  for (const Activation activation : {Activation::kRelu, Activation::kSigmoid}) {
    Convolution c = convolution({6, 6, 16, 3, 3}, Pass::kForward);
    c.activation = activation;
    for (const std::string& name : candidates(c)) {
      TestConvolution op(c);
      op.source.data()[place(c.input, 3, 3, 5)] = NAN;
      op.run(name);
      EXPECT_TRUE(std::isnan(op.made.data()[place(c.output, 2, 2, 0)])) << name;
      // A transform spreads it over its square.
      EXPECT_TRUE(!is_direct(name) || !std::isnan(op.made.data()[0])) << name;
    }
  }
}

TEST(Kernels, AChoiceIsByShapeAndMethodAloneAndSuitsThem) {
  if (!has_vectors()) GTEST_SKIP() << "without vectors there is nothing to choose";
  const auto chosen = [](const Shape& s, Pass pass, Method method) {
    Convolution c = convolution(s, pass);
    c.method = method;
    return make_kernel(c)->name;
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
  EXPECT_THROW(make_kernel(convolution(tiny, Pass::kForward), "nowhere"), std::invalid_argument);
}

/// Threads that share a convolution leave the bits that one thread leaves.
TEST(Shares, OfAConvolutionAreBitsOfTheWhole) {
  for (const Shape& shape : kShapes) {
    for (const Pass pass : kPasses) {
      Convolution c = variants(shape, pass)[1];
      c.activation = Activation::kNone;
      c.precision = Precision::kBf16;  // the kernels of float32, and where the core has more, those
      for (const std::string& name : candidates(c)) {
        TestConvolution alone(c);
        alone.run(name);
        for (const int threads : {2, 3, 4}) {
          TestConvolution shared(c);
          shared.run(name, threads);
          const std::string what =
              words(shape) + name + ", " + std::to_string(threads) + " threads";
          EXPECT_EQ(shared.made.values(), alone.made.values()) << what;
          EXPECT_EQ(shared.bias_gradient.values(), alone.bias_gradient.values()) << what;
        }
      }
    }
  }
}

/// The data gradient to the bit, the others to rounding; threads change no bit.
TEST(Gradients, OfBothAtOnceAreThoseOfEachAlone) {
  const auto all_of = [](const TestConvolution& op) {
    return std::vector{op.made.values(), op.weight_gradient.values(), op.bias_gradient.values()};
  };
  for (const Shape& shape : kShapes) {
    Convolution data = convolution(shape, Pass::kDataGradient), both = data, of_weights = data;
    both.pass = Pass::kGradients;
    of_weights.pass = Pass::kWeightGradient;
    data.masked = both.masked = true;
    TestConvolution given(of_weights);
    const Reference weights = reference(given), bias = reference_bias_gradient(given);
    each_instruction_set([&] {
      for (const std::string& name : candidates(both)) {
        const std::string what = words(shape) + name;
        TestConvolution one(data), op(both);
        one.run(name);
        op.run(name);
        EXPECT_EQ(op.made.values(), one.made.values()) << what;
        expect_near(weights, op.weight_gradient, false, what);
        expect_near(bias, op.bias_gradient, true, what);
        for (const int threads : {2, 3, 4}) {
          TestConvolution shared(both);
          shared.run(name, threads);
          EXPECT_EQ(all_of(shared), all_of(op)) << what << ", " << threads << " threads";
        }
      }
    });
  }
}

// ---- Products of bfloat16: as exact as float32's, of operands rounded to bfloat16.

Convolution rounded_convolution(Convolution c) {
  c.precision = Precision::kBf16;
  return c;
}

/// The name of the kernel for it that multiplies numbers of bfloat16; empty: there is none.
std::string bf16_name(const Convolution& c) {
  for (const std::string& name : candidates(c)) {
    if (name.ends_with("bf16")) return name;
  }
  return "";
}

/// As the kernels do it, but for denormals.
float round(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}
/// Of the difference's norm by the norm.
double error(const Reference& expected, const TestFloats& made) {
  const std::vector<float> found = made.values();
  double of_difference = 0, of_expected = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    of_difference += std::pow(expected.values[i] - found[i], 2);
    of_expected += std::pow(expected.values[i], 2);
  }
  if (expected.values.size() != found.size() || std::isnan(of_difference)) return INFINITY;
  return of_expected > 0 ? std::sqrt(of_difference / of_expected) : std::sqrt(of_difference);
}

class Bfloat16 : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16()) GTEST_SKIP() << "this core has no tiles of bfloat16 (AMX)";
  }
};

TEST_F(Bfloat16, IsTheDefinitionOnRoundedNumbers) {
  for (const Shape& shape : kShapes) {
    for (const Pass pass : kPasses) {
      for (const Convolution& plain : variants(shape, pass)) {
        const Convolution c = rounded_convolution(plain);
        if (bf16_name(c).empty()) continue;
        TestConvolution given(c), rounded(c), op(c);
        for (TestFloats* floats : {&rounded.source, &rounded.x, &rounded.weights})
          std::transform(floats->data(), floats->data() + floats->size(), floats->data(), round);
        op.run(bf16_name(c));
        EXPECT_LT(error(reference(rounded), op.made), 2e-6) << words(shape);
        if (pass == Pass::kWeightGradient) {
          EXPECT_LT(error(reference_bias_gradient(given), op.bias_gradient), 2e-6) << words(shape);
        }
        if (c.activation == Activation::kNone && !c.masked && !c.accumulate) {
          EXPECT_LT(error(reference(given), op.made), 8e-3) << words(shape);
        }
      }
    }
  }
}

TEST_F(Bfloat16, IsTakenWhereItIsFasterAndElseAFloat32KernelIs) {
  for (const Pass pass : kPasses) {
    const auto chosen = [&](const Shape& s) {
      return candidates(rounded_convolution(convolution(s, pass))).front();
    };
    for (const Shape& s : {Shape{64, 64, 16, 16, 5}, {14, 14, 256, 256, 3}, {1, 50, 768, 96, 1}})
      EXPECT_EQ(chosen(s), "bf16") << words(s);
    for (const Shape& s : {Shape{1, 1, 512, 512, 1}, {2, 2, 64, 64, 3}, {64, 64, 16, 1, 5}})
      EXPECT_EQ(chosen(s), candidates(convolution(s, pass)).front()) << words(s);
  }
}

}  // namespace
}  // namespace millrace::kernels
