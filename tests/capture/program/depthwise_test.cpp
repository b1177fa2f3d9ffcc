#include "capture/program/kernels/depthwise.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/capture/program/kernels_reference.h"

namespace millrace::kernels {
namespace {

struct Sum {
  double value = 0, magnitude = 1e-6;
  void add(double a, double b) {
    value += a * b;
    magnitude += std::abs(a * b);
  }
};

void run(TestConvolution& memory, Convolution c, int threads) {
  for (const Pass pass : {Pass::kForward, Pass::kDataGradient, Pass::kWeightGradient}) {
    c.pass = pass;
    Operands operands = memory.operands(c);
    if (pass != Pass::kWeightGradient) operands.bias_gradient = nullptr;
    for (int thread = 0; thread < threads; ++thread) depthwise(c, operands, {thread, threads});
  }
}

std::vector<float> made(TestConvolution& memory) {
  std::vector<float> all = memory.y.values();
  for (const auto& part :
       {memory.dx.values(), copy(memory.weight_gradient), copy(memory.bias_gradient)})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// All four results as the definition has them, in made()'s order.
std::vector<Sum> expected(const Convolution& c, TestConvolution& m) {
  const int k = c.kernel, channels = c.input.channels;
  const auto pixel = [&](const Layout& l, int y, int x, int channel) {
    return std::size_t((y * l.width + x) * channels + channel);
  };
  std::vector<Sum> y(c.output.floats()), dx(c.input.floats()), dw(m.weights.size()),
      db(m.bias.size());
  for (int channel = 0; channel < channels; ++channel) {
    for (int row = 0; row < c.output.height; ++row) {
      for (int column = 0; column < c.output.width; ++column) {
        Sum& out = y[pixel(c.output, row, column, channel)];
        const double gradient = m.dy.at(row, column, channel);
        out.add(1, m.bias.data()[channel]);
        db[std::size_t(channel)].add(1, gradient);
        for (int tap = 0; tap < k * k; ++tap) {
          const int v = row * c.stride + tap / k - k / 2, u = column * c.stride + tap % k - k / 2;
          if (v < 0 || u < 0 || v >= c.input.height || u >= c.input.width) continue;
          const auto weight = std::size_t(channel * k * k + tap);
          out.add(m.x.at(v, u, channel), m.weights.data()[weight]);
          dx[pixel(c.input, v, u, channel)].add(gradient, m.weights.data()[weight]);
          dw[weight].add(gradient, m.x.at(v, u, channel));
        }
      }
    }
  }
  for (const auto* part : {&dx, &dw, &db}) y.insert(y.end(), part->begin(), part->end());
  return y;
}

TEST(Depthwise, IsItsDefinitionOnAnyNumberOfThreads) {
  struct {
    int height, width, channels, kernel, stride;
  } const shapes[] = {{1, 1, 2, 3, 1},  {5, 7, 3, 3, 1},   {6, 4, 20, 5, 2}, {2, 3, 17, 11, 1},
                      {9, 8, 33, 3, 2}, {3, 2, 8, 7, 2},   {4, 4, 16, 1, 1}, {1, 6, 5, 5, 3},
                      {2, 2, 64, 9, 2}, {12, 11, 48, 3, 1}};
  for (const auto& shape : shapes) {
    SCOPED_TRACE(testing::Message() << shape.height << "x" << shape.width << "x" << shape.channels
                                    << " k" << shape.kernel << " s" << shape.stride);
    Convolution c{.input = {shape.height, shape.width, shape.channels},
                  .output = {(shape.height - 1) / shape.stride + 1,
                             (shape.width - 1) / shape.stride + 1, shape.channels},
                  .kernel = shape.kernel,
                  .stride = shape.stride};
    TestConvolution one(c, 1), three(c, 1);
    run(one, c, 1);
    run(three, c, 3);
    const std::vector<Sum> sums = expected(c, one);
    const std::vector<float> found = made(one);
    ASSERT_EQ(found.size(), sums.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      ASSERT_NEAR(found[i], sums[i].value, 1e-5 * sums[i].magnitude) << i;
    EXPECT_EQ(found, made(three));
    EXPECT_TRUE(one.y.border_is_untouched() && one.dx.border_is_untouched());
  }
}

}  // namespace
}  // namespace millrace::kernels
