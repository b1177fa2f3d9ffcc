#include "io/plot/plot.h"

#include <cmath>

#include <gtest/gtest.h>
#include <opencv2/imgcodecs.hpp>

#include "io/plot/plot_axis.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using Plot = FolderTest;

// Pixels of that colour, give or take `most`; the picture is BGR.
int count_near(const cv::Mat& picture, const cv::Vec3b& colour, int most = 3) {
  const cv::Scalar middle(colour), off = cv::Scalar::all(most);
  cv::Mat near;
  cv::inRange(picture, middle - off, middle + off, near);
  return cv::countNonZero(near);
}

const cv::Vec3b kWhite(255, 255, 255), kBlue(178, 114, 0), kVermilion(0, 94, 213);

TEST_F(Plot, AChartShowsItsSeries) {
  Chart chart{"Loss", "frame", "loss", true, {}};
  Series falling{"partime", {}, false}, level{"mean frame", {{0, 0.02}, {500, 0.02}}, true};
  for (int x = 0; x <= 500; ++x) falling.points.push_back({x, 0.3 * std::exp(-x / 90.0) + 0.004});
  chart.series = {falling, level};
  write_chart(chart, folder / "sub/loss.png");

  const cv::Mat picture = cv::imread(folder / "sub/loss.png", cv::IMREAD_COLOR);
  ASSERT_EQ(picture.size(), cv::Size(1200, 640));
  EXPECT_GT(count_near(picture, kWhite), 1200 * 640 / 2);
  EXPECT_GT(count_near(picture, kBlue), 800) << "a line two pixels thick, over the whole width";
  EXPECT_GT(count_near(picture, kVermilion), 200);
}

TEST_F(Plot, TextIsOfAnyLanguageOrDamaged) {
  const auto ink = [&](const std::string& title) {
    write_chart({.title = title}, folder / "text.png");
    const cv::Mat top = cv::imread(folder / "text.png")(cv::Rect(0, 0, 600, 60));
    return top.rows * top.cols - count_near(top, kWhite);
  };
  EXPECT_GT(ink("Größe → µ"), 100);
  EXPECT_NE(ink("Größe"), ink("Gr e")) << "each letter is drawn";
  EXPECT_GT(ink("caf\xe9 loss"), 100) << "not UTF-8";
}

TEST_F(Plot, ACrowdOfPointsIsALineOverNoise) {
  Chart chart{.series = {{"network", {}, false}}};
  for (int x = 0; x < 2000; ++x) chart.series[0].points.push_back({x, x % 2 ? 3.0 : 1.0});
  write_chart(chart, folder / "noise.png");
  const cv::Mat picture = cv::imread(folder / "noise.png");
  const int line = count_near(picture, kBlue);
  EXPECT_GT(line, 1000) << "over the whole width";
  EXPECT_LT(line, 6000) << "and not the whole area";
}

TEST_F(Plot, AChartWithoutUsableDataIsStillAPicture) {
  Chart chart{"", "", "", true, {{"a", {{0, NAN}, {1, -1.0}, {2, INFINITY}}, false}}};
  write_chart(chart, folder / "a.png");
  write_chart({}, folder / "b.png");
  write_strip("", {}, folder / "c.png");
  for (const char* const name : {"a.png", "b.png", "c.png"}) {
    EXPECT_FALSE(cv::imread(folder / name).empty()) << name;
  }
}

TEST_F(Plot, AStripKeepsPixelsSharp) {
  Frame checker, grey;
  checker.reshape(64, 48, 3);
  for (int i = 0; i < 64 * 48; ++i) {
    const std::uint8_t pixel[] = {std::uint8_t(i % 2 ? 200 : 0), 30, 60};
    std::copy_n(pixel, 3, &checker.pixels[i * 3]);
  }
  grey.reshape(64, 48, 1);
  std::fill(grey.pixels.begin(), grey.pixels.end(), 77);
  write_strip("Prediction", {{"input", "frame 9", checker}, {"output", "", grey}, {"none", "", {}}},
              folder / "strip.png");
  const cv::Mat picture = cv::imread(folder / "strip.png", cv::IMREAD_COLOR);
  ASSERT_FALSE(picture.empty());
  EXPECT_GE(picture.cols, 2 * 320);
  // Each pixel five wide and high, none mixed with its neighbour.
  EXPECT_EQ(count_near(picture, {60, 30, 200}, 0), 64 * 48 * 25 / 2);
  EXPECT_EQ(count_near(picture, {60, 30, 0}, 0), 64 * 48 * 25 / 2);
  EXPECT_GE(count_near(picture, {77, 77, 77}), 64 * 48 * 25);
}

std::string labels(const Axis& axis) {
  std::string all;
  for (const Tick& tick : axis.ticks()) all += tick.label + " ";
  return all;
}

TEST(Axis, ShortNumbers) {
  for (const auto& [number, text] : {std::pair(0.25, "0.25"),
                                     {1500, "1500"},
                                     {20000, "20k"},
                                     {2500000, "2.5M"},
                                     {0.00001, "1e-5"},
                                     {1e12, "1e12"},
                                     {-0.5, "-0.5"},
                                     {0, "0"}})
    EXPECT_EQ(short_number(number), text);
}

TEST(Axis, MarksAreNice) {
  for (const auto& [axis, marks] :
       {std::pair(Axis::linear(0.0, 1.0, 5, false), "0 0.2 0.4 0.6 0.8 1 "),
        {Axis::linear(0.0, 795.0, 8, false), "0 100 200 300 400 500 600 700 "},
        {Axis::linear(-1.0, 1.0, 4, false), "-1 -0.5 0 0.5 1 "},
        {Axis::logarithmic(0.0005, 20.0, 8), "0.001 0.01 0.1 1 10 "},
        {Axis::logarithmic(0.9, 12.0, 8), "1 2 5 10 "}})
    EXPECT_EQ(labels(axis), marks);
  EXPECT_EQ(Axis::linear(3.0, 10.0, 5).ticks().front().value, 0.0) << "where that is near";
  EXPECT_GT(Axis::linear(9.0, 10.0, 5).ticks().front().value, 8.0);
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
