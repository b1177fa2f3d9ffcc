#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "capture/program/kernels/channels.h"
#include "capture/program/kernels/kernels.h"
#include "tests/capture/program/kernels_reference.h"

namespace millrace::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Elementwise, EveryLengthAndNothingBeyond) {
  for (std::size_t count : {0, 1, 7, 16, 17, 63, 100}) {
    TestFloats a(count + 1), b(count + 1), out(count + 1);
    std::mt19937 random(3);
    a.fill(random);
    b.fill(random);
    const auto expect = [&](const char* what, auto formula) {
      EXPECT_EQ(out.data()[count], 77) << what << " wrote beyond " << count;
      for (std::size_t i = 0; i < count; ++i)
        EXPECT_NEAR(out.data()[i], formula(a.data()[i], b.data()[i]), 1e-6) << what << " at " << i;
    };
    out.data()[count] = 77;
    relu(a.data(), out.data(), count);
    expect("relu", [](double x, double) { return x > 0 ? x : 0; });
    sigmoid(a.data(), out.data(), count);
    expect("sigmoid", [](double x, double) { return 1 / (1 + std::exp(-x)); });
    add(a.data(), b.data(), out.data(), count);
    expect("add", [](double x, double y) { return x + y; });
    relu_mask(a.data(), b.data(), out.data(), count);
    expect("relu_mask", [](double x, double y) { return y > 0 ? x : 0; });
    sigmoid_gradient(a.data(), b.data(), out.data(), count);
    expect("sigmoid_gradient", [](double g, double y) { return g * y * (1 - y); });
  }
}

TEST(Elementwise, SigmoidOfLargeNumbersIsNeitherNaNNorBeyondOne) {
  const float in[] = {-kInfinity, -1e30f, -1e6f, -3000, -200,  -90,      0,
                      90,         200,    3000,  1e6f,  1e30f, kInfinity};
  float out[13];
  sigmoid(in, out, 13);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(out[i], 0) << in[i];
  EXPECT_EQ(out[6], 0.5f);
  for (int i = 7; i < 13; ++i) EXPECT_EQ(out[i], 1) << in[i];
  for (const float y : out) EXPECT_TRUE(y >= 0 && y <= 1) << y;
}

TEST(Elementwise, ANaNStaysOneThroughReluAndSigmoid) {
  std::vector<float> in(37, 1.0f), out(37);
  in[3] = in[36] = std::nanf("");
  for (const auto& activation : {relu, sigmoid}) {
    activation(in.data(), out.data(), in.size());
    for (std::size_t i = 0; i < in.size(); ++i) EXPECT_EQ(std::isnan(out[i]), i == 3 || i == 36);
  }
}

TEST(Elementwise, OneValueThatIsNotFiniteIsFoundAnywhere) {
  for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
    for (std::size_t at : {0, 15, 16, 70, 98}) {
      TestFloats values(100);
      EXPECT_TRUE(all_finite(values.data(), 99));
      values.data()[at] = bad;
      EXPECT_FALSE(all_finite(values.data(), 99)) << bad << " at " << at;
    }
  }
}

TEST(Channels, EachPixelGetsItsChannelsNumberAndSumsAreOverPixels) {
  for (const int channels : {1, 3, 16, 20, 33}) {
    const Layout layout{.height = 3, .width = 5, .channels = channels};
    TestFloats x(layout.floats()), added(channels), y(layout.floats() + 1), sums(channels + 1);
    std::mt19937 random(5);
    x.fill(random);
    added.fill(random);
    y.data()[layout.floats()] = sums.data()[channels] = 77;
    for (int index = 0; index < 2; ++index) {  // as two threads do it
      const Share share{.index = index, .count = 2};
      add_to_channels(layout, x.data(), added.data(), Activation::kRelu, y.data(), share);
      channel_sums(layout, x.data(), sums.data(), share);
    }
    for (int c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::size_t i = std::size_t(c); i < layout.floats(); i += std::size_t(channels)) {
        sum += double(x.data()[i]);
        EXPECT_EQ(y.data()[i], std::max(0.0f, x.data()[i] + added.data()[c]));
      }
      EXPECT_NEAR(sums.data()[c], sum, 1e-5);
    }
    EXPECT_EQ(y.data()[layout.floats()], 77);
    EXPECT_EQ(sums.data()[channels], 77);
  }
}

TEST(Loss, MseAndItsGradientThroughTheSigmoid) {
  for (const bool through_sigmoid : {false, true}) {
    TestImage p({5, 7, 3}), t({5, 7, 3}), g({5, 7, 3});
    std::mt19937 random(5);
    p.fill(random);
    t.fill(random);
    const float loss = mse(p.layout(), p.first(), t.first(), g.first(), through_sigmoid, 0.5f);
    double sum = 0;
    for (int y = 0; y < 5; ++y) {
      for (int x = 0; x < 7; ++x) {
        for (int c = 0; c < 3; ++c) {
          const double v = p.value(y, x, c), d = v - t.value(y, x, c);
          sum += d * d;
          EXPECT_NEAR(g.at(y, x, c), 0.5 * 2 / 105 * d * (through_sigmoid ? v * (1 - v) : 1), 1e-8);
        }
      }
    }
    EXPECT_NEAR(loss, sum / 105, 1e-6);
    EXPECT_TRUE(g.border_is_untouched());
    EXPECT_EQ(loss, mse(p.layout(), p.first(), t.first(), nullptr, false));
  }
}

TEST(Images, PlanesThereAndBack) {
  for (const int channels : {1, 3, 5}) {
    TestImage a({4, 6, channels}), b({4, 6, channels});
    std::mt19937 random(6);
    a.fill(random);
    TestFloats planes(a.layout().floats());
    to_planes(a.first(), a.layout(), planes.data());
    EXPECT_EQ(planes.data()[24 * (channels - 1) + 7], a.at(1, 1, channels - 1));
    from_planes(planes.data(), b.first(), b.layout());
    EXPECT_EQ(a.values(), b.values());
    EXPECT_TRUE(b.border_is_untouched());
  }
}

}  // namespace
}  // namespace millrace::kernels
