// Plain kernels in double precision, which the fast ones are held against, and what their tests
// share.
#pragma once

#include <cmath>
#include <cstddef>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "capture/program/kernels/kernels.h"

namespace millrace::kernels {

/// 64-byte aligned floats, with room to see writes that go beyond.
class TestFloats {
 public:
  explicit TestFloats(std::size_t count, float value = 0);
  TestFloats(const TestFloats&) = delete;
  float* data() { return data_; }
  std::size_t size() const { return count_; }
  void fill(std::mt19937& random);
  std::vector<float> values() const { return {data_, data_ + count_}; }
  /// Whether the floats before and behind them hold what the constructor put there.
  bool border_is_untouched() const;

 private:
  std::size_t count_;
  std::vector<float> memory_;
  float* data_;
};

/// Of a channel of a pixel.
inline std::size_t place(const Layout& l, int y, int x, int c) {
  return std::size_t(y) * l.row() + std::size_t(x) * l.channels + c;
}

struct Shape {
  int height, width, in, out, kernel, stride = 1;
  int groups = 1;
  std::optional<TapGrid> window{};
};
std::string words(const Shape& shape);
Convolution convolution(const Shape& shape, Pass pass);
/// Without and with each activation, mask, and gradients to add to.
std::vector<Convolution> variants(const Shape& shape, Pass pass);
constexpr Pass kPasses[] = {Pass::kForward, Pass::kDataGradient, Pass::kWeightGradient};

/// What a convolution reads and writes, filled alike each time: what is written, too.
struct TestConvolution {
  explicit TestConvolution(const Convolution& c);
  /// Runs an implementation; scratch comes full of NaN, since its contents may be anything.
  void run(const std::string& name, int threads = 1);

  const Convolution c;
  TestFloats source, x, weights, bias, mask, made, weight_gradient, bias_gradient;
};

/// Results as a pass has them in memory. `magnitudes` are the same sums over absolute values: what
/// rounding is relative to.
struct Reference {
  explicit Reference(std::size_t count) : values(count), magnitudes(count) {}
  void add(std::size_t place, double value) {
    values[place] += value;
    magnitudes[place] += std::abs(value);
  }
  std::vector<double> values, magnitudes;
};
/// One pass as the definition has it.
Reference reference(TestConvolution& given);
Reference reference_bias_gradient(TestConvolution& given);

/// Calls check() with each instruction set that this machine and this build have.
void each_instruction_set(const std::function<void()>& check);

}  // namespace millrace::kernels
