#include "engine/monitor/loss_history.h"

#include <gtest/gtest.h>

#include <cmath>

namespace millrace::engine {
namespace {

TEST(LossHistory, KeepsWhatTheReportNeeds) {
  LossHistory h;
  for (int i = 1; i <= 300; ++i) h.add(float(i));
  EXPECT_EQ(h.count(), 300);
  EXPECT_EQ(h.first(), 1);
  EXPECT_EQ(h.last(), 300);
  EXPECT_DOUBLE_EQ(h.mean(), 150.5);
  EXPECT_DOUBLE_EQ(h.recent(), 250.5);
  EXPECT_EQ(h.curve().size(), 300u);
}

TEST(LossHistory, ThinsTheCurveAndKeepsItsMean) {
  LossHistory h;
  const int samples = 3 * int(LossHistory::kPoints) + 4;
  for (int i = 0; i < samples; ++i) h.add(float(i));
  const auto curve = h.curve();
  EXPECT_LE(curve.size(), LossHistory::kPoints);
  for (const auto& [x, y] : curve) EXPECT_NEAR(x, y, 1e-6);  // the loss of sample i was i
}

TEST(LossHistory, ForgetsANanAfterAWhile) {
  LossHistory h;
  h.add(std::nanf(""));
  EXPECT_TRUE(std::isnan(h.recent()));
  for (int i = 0; i < 100; ++i) h.add(1.0f);
  EXPECT_EQ(h.recent(), 1.0);
  EXPECT_EQ(h.not_finite(), 1);
}

TEST(Downsampled, AveragesNeighbours) {
  Downsampled<2> history(4);
  for (int i = 0; i < 10; ++i) history.add({double(i), 1.0});
  // Full at 4 points of one, then at 4 of two; from then on points of four.
  ASSERT_EQ(history.points().size(), 2u);
  EXPECT_EQ(history.width(), 4u);
  EXPECT_DOUBLE_EQ(history.points()[0][0], 1.5);
  EXPECT_DOUBLE_EQ(history.points()[1][0], 5.5);
  EXPECT_DOUBLE_EQ(history.points()[1][1], 1.0);
}

}  // namespace
}  // namespace millrace::engine
