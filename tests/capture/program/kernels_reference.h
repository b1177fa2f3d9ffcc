// Plain kernels in double precision, which the fast ones are held against.
#pragma once

#include <cstddef>
#include <random>
#include <vector>

#include "capture/program/kernels/kernels.h"

namespace millrace::kernels {

/// UpdateNumbers::optimizer of adam.
constexpr int kAdam = 0;

/// A buffer of a layout, 64-byte aligned, with room to see writes that go beyond.
class TestImage {
 public:
  explicit TestImage(const Layout& layout);
  TestImage(const TestImage&) = delete;
  float* first() { return data_; }
  float& at(int y, int x, int c) { return first()[y * layout_.row() + x * layout_.channels + c]; }
  /// Zero outside the image.
  double value(int y, int x, int c);
  const Layout& layout() const { return layout_; }
  void fill(std::mt19937& random);
  /// Whether the floats before and behind it hold what the constructor put there.
  bool border_is_untouched();
  std::vector<float> values();

 private:
  Layout layout_;
  std::vector<float> memory_;
  float* data_;
};

/// 64-byte aligned floats.
class TestFloats {
 public:
  explicit TestFloats(std::size_t count, float value = 0);
  TestFloats(const TestFloats&) = delete;
  float* data() { return data_; }
  std::size_t size() const { return count_; }
  void fill(std::mt19937& random);

 private:
  std::size_t count_;
  std::vector<float> memory_;
  float* data_;
};

/// What a convolution reads and writes, filled alike each time: what is written, too.
struct TestConvolution {
  explicit TestConvolution(const Convolution& c);
  /// With plain weights, and neither scratch nor shared memory.
  Operands operands(const Convolution& c);

  TestImage x, y, dy, dx, mask;
  TestFloats weights, bias, weight_gradient, bias_gradient;
};

/// One pass as the definition has it; results in the order of memory, or OIHW.
/// `magnitudes` are the same sums over absolute values: what rounding is relative to.
struct Reference {
  std::vector<double> values, magnitudes;
};
Reference reference_forward(const Convolution& c, TestImage& x, const float* weights,
                            const float* bias);
Reference reference_data_gradient(const Convolution& c, TestImage& dy, const float* weights,
                                  TestImage* mask);
Reference reference_weight_gradient(const Convolution& c, TestImage& x, TestImage& dy);
Reference reference_bias_gradient(TestImage& dy);

inline std::vector<float> copy(TestFloats& floats) {
  return {floats.data(), floats.data() + floats.size()};
}

}  // namespace millrace::kernels
