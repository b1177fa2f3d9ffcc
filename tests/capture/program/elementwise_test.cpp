#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "capture/program/kernels/kernels.h"
#include "tests/capture/program/kernels_reference.h"

namespace millrace::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

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

TEST(Channels, SumsAreOverPixels) {
  for (const int channels : {1, 3, 16, 20, 33}) {
    const Layout layout{.height = 3, .width = 5, .channels = channels};
    TestFloats x(layout.floats()), sums(channels + 1);
    std::mt19937 random(5);
    x.fill(random);
    sums.data()[channels] = 77;
    for (int index = 0; index < 2; ++index)  // as two threads do it
      channel_sums(layout, x.data(), 0.5f, sums.data(), {.index = index, .count = 2});
    for (int c = 0; c < channels; ++c) {
      double sum = 0;
      for (std::size_t i = std::size_t(c); i < layout.floats(); i += std::size_t(channels))
        sum += double(x.data()[i]);
      EXPECT_NEAR(sums.data()[c], sum / 2, 1e-5);
    }
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
