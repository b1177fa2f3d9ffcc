// Products of bfloat16: as exact as float32's, of operands rounded to bfloat16.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "capture/program/kernels/kernels.h"
#include "tests/capture/program/kernels_reference.h"

namespace millrace::kernels {
namespace {

struct Bf16Shape {
  int height, width, in, out, kernel, stride = 1;
  int groups = 1;
  std::optional<TapGrid> window{};
};

/// Every kernel size and stride, pictures narrower and wider than a tile, channels beside a tile's,
/// windows of any kind.
const Bf16Shape kBf16Shapes[] = {{1, 1, 16, 16, 5},
                                 {5, 7, 16, 16, 3},
                                 {16, 16, 16, 16, 5},
                                 {13, 40, 32, 48, 3},
                                 {20, 33, 17, 19, 3},
                                 {7, 10, 3, 16, 5},
                                 {12, 12, 16, 3, 5},
                                 {18, 18, 16, 16, 15},
                                 {9, 8, 64, 96, 1},
                                 {1, 50, 96, 160, 1},
                                 {3, 20, 100, 33, 1},
                                 {1, 1, 64, 64, 1},
                                 {9, 7, 16, 32, 3, 2},
                                 {12, 20, 32, 32, 3, 2},
                                 {11, 12, 3, 16, 7, 2},
                                 {9, 10, 32, 64, 1, 2},
                                 {8, 9, 16, 16, 1, 3},
                                 {20, 40, 32, 32, 5},
                                 {60, 100, 32, 16, 3},
                                 {61, 90, 64, 32, 3, 2},
                                 {50, 120, 48, 48, 1},
                                 {12, 11, 48, 96, 3, 1, 3},
                                 {9, 8, 64, 64, 3, 2, 2},
                                 {8, 12, 16, 16, 0, 0, 1, TapGrid{{4, 4, 0, 1}, {4, 4, 0, 1}}},
                                 {11, 9, 16, 33, 0, 0, 1, TapGrid{{3, 2, 0, 1}, {2, 2, 1, 1}}},
                                 {9, 8, 16, 20, 0, 0, 1, TapGrid{{1, 1, 0, 1}, {7, 1, 3, 1}}},
                                 {6, 6, 16, 16, 0, 0, 1, TapGrid{{2, 3, 0, 1}, {2, 3, 0, 1}}},
                                 {10, 9, 17, 18, 0, 0, 1, TapGrid{{3, 1, 4, 4}, {3, 2, 2, 2}}}};

std::string words(const Bf16Shape& s) {
  return std::to_string(s.height) + "x" + std::to_string(s.width) + " " + std::to_string(s.in) +
         "->" + std::to_string(s.out) + " k" + std::to_string(s.kernel) + " stride " +
         std::to_string(s.stride) + (s.window ? " window " : " ") + std::to_string(s.groups) +
         " groups";
}

Convolution bf16_convolution(const Bf16Shape& s, Pass pass) {
  Convolution c;
  c.pass = pass;
  c.input = {s.height, s.width, s.in};
  c.kernel = s.kernel;
  c.stride = s.stride;
  c.window = s.window;
  c.groups = s.groups;
  c.precision = Precision::kBf16;
  const auto [rows, columns] = window_of(c);
  c.output = {rows.outputs(s.height), columns.outputs(s.width), s.out};
  return c;
}

/// The name of the kernel for it that multiplies numbers of bfloat16.
std::string bf16_name(const Convolution& c) {
  for (const std::string& name : candidates(c)) {
    if (name.ends_with("bf16")) return name;
  }
  return "none";
}

/// As the kernels do it, but for denormals.
float rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
}
void round_all(float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = rounded(values[i]);
}

/// What a pass makes, of plain operands or of rounded ones.
Reference reference(const Convolution& c, bool of_rounded) {
  TestConvolution given(c);
  if (of_rounded) {
    round_all(given.x.first(), c.input.floats());
    round_all(given.dy.first(), c.output.floats());
    round_all(given.weights.data(), given.weights.size());
  }
  if (c.pass == Pass::kForward)
    return reference_forward(c, given.x, given.weights.data(), given.bias.data());
  if (c.pass == Pass::kDataGradient)
    return reference_data_gradient(c, given.dy, given.weights.data(),
                                   c.masked ? &given.mask : nullptr);
  Reference made = reference_weight_gradient(c, given.x, given.dy);
  for (std::size_t i = 0; i < made.values.size() && c.accumulate; ++i)
    made.values[i] += given.weight_gradient.data()[i];
  return made;
}

/// Of the difference's norm by the norm.
double error(const Reference& expected, const std::vector<float>& found) {
  double of_difference = 0, of_expected = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    of_difference += std::pow(expected.values[i] - found[i], 2);
    of_expected += std::pow(expected.values[i], 2);
  }
  if (expected.values.size() != found.size() || std::isnan(of_difference)) return INFINITY;
  return of_expected > 0 ? std::sqrt(of_difference / of_expected) : std::sqrt(of_difference);
}

/// Scratch comes full of NaN, since its contents may be anything.
std::vector<float> run_bf16(const Convolution& c, std::vector<float>* bias = nullptr) {
  TestConvolution memory(c);
  const auto kernel = make_kernel(c, bf16_name(c));
  EXPECT_EQ(kernel->name(), bf16_name(c));
  TestFloats packed(kernel->packed_floats(), NAN), scratch(kernel->scratch_floats(), NAN),
      shared(kernel->shared_floats(1), NAN);
  Operands operands = memory.operands(c);
  if (kernel->packed_floats() > 0) operands.packed = packed.data();
  operands.scratch = scratch.data();
  operands.shared = shared.data();
  if (kernel->packed_floats() > 0) kernel->pack(memory.weights.data(), packed.data());
  kernel->run(operands);
  for (TestImage* image : {&memory.y, &memory.dx}) EXPECT_TRUE(image->border_is_untouched());
  if (bias) *bias = copy(memory.bias_gradient);
  return c.pass == Pass::kForward        ? memory.y.values()
         : c.pass == Pass::kDataGradient ? memory.dx.values()
                                         : copy(memory.weight_gradient);
}

class Bfloat16 : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_bf16()) GTEST_SKIP() << "this core has no tiles of bfloat16 (AMX)";
  }

  void expect_exact(const Convolution& c, const std::string& what) {
    const std::vector<float> made = run_bf16(c);
    EXPECT_LT(error(reference(c, true), made), 2e-6) << what;
    if (c.activation != Activation::kNone || c.masked || c.accumulate) return;
    const double against_plain = error(reference(c, false), made);
    EXPECT_LT(against_plain, 8e-3) << what;
    largest_ = std::max(largest_, against_plain);
  }
  void TearDown() override { RecordProperty("error_of_rounding", std::to_string(largest_)); }

  double largest_ = 0;
};

TEST_F(Bfloat16, ForwardIsTheDefinitionOnRoundedNumbers) {
  for (const Bf16Shape& s : kBf16Shapes) {
    Convolution c = bf16_convolution(s, Pass::kForward);
    for (const auto activation : {Activation::kNone, Activation::kRelu, Activation::kSigmoid}) {
      c.activation = activation;
      expect_exact(c, words(s));
    }
  }
}

TEST_F(Bfloat16, DataGradientIsTheDefinitionOnRoundedNumbers) {
  for (const Bf16Shape& s : kBf16Shapes) {
    Convolution c = bf16_convolution(s, Pass::kDataGradient);
    for (const bool masked : {false, true}) {
      c.masked = masked;
      expect_exact(c, words(s));
    }
  }
}

TEST_F(Bfloat16, WeightGradientIsTheDefinitionOnRoundedNumbers) {
  for (const Bf16Shape& s : kBf16Shapes) {
    Convolution c = bf16_convolution(s, Pass::kWeightGradient);
    for (const bool accumulate : {false, true}) {
      c.accumulate = accumulate;
      expect_exact(c, words(s));
    }
  }
}

TEST_F(Bfloat16, SumsOfTheBiasGradientAreOfPlainNumbers) {
  const Convolution c = bf16_convolution({60, 100, 32, 16, 3}, Pass::kWeightGradient);
  std::vector<float> bias;
  run_bf16(c, &bias);
  TestConvolution given(c);
  EXPECT_LT(error(reference_bias_gradient(given.dy), bias), 2e-6);
}

TEST_F(Bfloat16, IsTakenWhereItIsFasterAndElseAFloat32KernelIs) {
  const auto chosen = [](const Bf16Shape& s, Pass pass, Precision precision) {
    Convolution c = bf16_convolution(s, pass);
    c.precision = precision;
    return candidates(c).front();
  };
  for (const Pass pass : {Pass::kForward, Pass::kDataGradient, Pass::kWeightGradient}) {
    for (const Bf16Shape& s :
         {Bf16Shape{64, 64, 16, 16, 5}, {14, 14, 256, 256, 3}, {1, 50, 768, 96, 1}})
      EXPECT_EQ(chosen(s, pass, Precision::kBf16), "bf16") << words(s);
    for (const Bf16Shape& s : {Bf16Shape{1, 1, 512, 512, 1}, {2, 2, 64, 64, 3}, {64, 64, 16, 1, 5}})
      EXPECT_EQ(chosen(s, pass, Precision::kBf16), chosen(s, pass, Precision::kFloat32))
          << words(s);
  }
}

}  // namespace
}  // namespace millrace::kernels
