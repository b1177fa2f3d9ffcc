#include "io/plot/plot_axis.h"

#include <cmath>

#include <gtest/gtest.h>

namespace millrace::io {
namespace {

std::string labels(const Axis& axis) {
  std::string all;
  for (const Tick& tick : axis.ticks()) all += tick.label + " ";
  return all;
}

TEST(Axis, ShortNumbers) {
  EXPECT_EQ(short_number(0.25), "0.25");
  EXPECT_EQ(short_number(1500), "1500");
  EXPECT_EQ(short_number(20000), "20k");
  EXPECT_EQ(short_number(2500000), "2.5M");
  EXPECT_EQ(short_number(0.00001), "1e-5");
  EXPECT_EQ(short_number(1e12), "1e12");
  EXPECT_EQ(short_number(-0.5), "-0.5");
  EXPECT_EQ(short_number(0), "0");
}

TEST(Axis, LinearMarksAreNice) {
  EXPECT_EQ(labels(Axis::linear(0.0, 1.0, 5, false)), "0 0.2 0.4 0.6 0.8 1 ");
  EXPECT_EQ(labels(Axis::linear(0.0, 795.0, 8, false)), "0 100 200 300 400 500 600 700 ");
  EXPECT_EQ(labels(Axis::linear(-1.0, 1.0, 4, false)), "-1 -0.5 0 0.5 1 ");
}

TEST(Axis, LinearStartsAtZeroWhereThatIsNear) {
  EXPECT_EQ(Axis::linear(3.0, 10.0, 5).ticks().front().value, 0.0);
  EXPECT_GT(Axis::linear(9.0, 10.0, 5).ticks().front().value, 8.0);
}

TEST(Axis, LogarithmicMarksDecades) {
  EXPECT_EQ(labels(Axis::logarithmic(0.0005, 20.0, 8)), "0.001 0.01 0.1 1 10 ");
  EXPECT_EQ(labels(Axis::logarithmic(0.9, 12.0, 8)), "1 2 5 10 ");
}

TEST(Axis, PlacesValues) {
  const Axis line = Axis::linear(0.0, 10.0, 5, false);
  EXPECT_DOUBLE_EQ(line.place(0.0), 0.0);
  EXPECT_DOUBLE_EQ(line.place(7.5), 0.75);
  const Axis log = Axis::logarithmic(0.01, 1.0, 5);
  EXPECT_NEAR(log.place(0.1), 0.5, 1e-12);
  EXPECT_TRUE(std::isnan(log.place(0.0)));
}

TEST(Axis, OddDataStillHasMarks) {
  for (const Axis& axis : {Axis::linear(INFINITY, -INFINITY, 5), Axis::linear(5.0, 5.0, 5),
                           Axis::linear(0.0, 0.0, 5), Axis::logarithmic(INFINITY, -INFINITY, 5),
                           Axis::logarithmic(0.003, 0.003, 5), Axis::linear(-7.0, -7.0, 5)}) {
    EXPECT_GE(axis.ticks().size(), 2u);
    EXPECT_LE(axis.ticks().size(), 12u);
  }
}

}  // namespace
}  // namespace millrace::io
