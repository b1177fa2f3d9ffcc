#include "io/plot/plot.h"

#include <cmath>
#include <stdexcept>

#include <gtest/gtest.h>
#include <opencv2/imgcodecs.hpp>

#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using Plot = FolderTest;

// Pixels of exactly that colour, or nearly so; the picture is BGR.
int count_near(const cv::Mat& picture, const cv::Vec3b& colour) {
  int count = 0;
  for (int y = 0; y < picture.rows; ++y) {
    for (int x = 0; x < picture.cols; ++x) {
      count += cv::norm(picture.at<cv::Vec3b>(y, x), colour, cv::NORM_INF) <= 3;
    }
  }
  return count;
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

TEST_F(Plot, AChartWithoutUsableDataIsStillAPicture) {
  Chart chart{"", "", "", true, {{"a", {{0, NAN}, {1, -1.0}, {2, INFINITY}}, false}}};
  write_chart(chart, folder / "a.png");
  write_chart({}, folder / "b.png");
  write_strip("", {}, folder / "c.png");
  for (const char* const name : {"a.png", "b.png", "c.png"}) {
    EXPECT_FALSE(cv::imread(folder / name).empty()) << name;
  }
}

Frame flat(int width, int height, std::uint8_t red, std::uint8_t green, std::uint8_t blue) {
  Frame frame;
  frame.width = width;
  frame.height = height;
  frame.channels = 3;
  for (int i = 0; i < width * height; ++i) {
    frame.pixels.insert(frame.pixels.end(), {red, green, blue});
  }
  return frame;
}

TEST_F(Plot, AStripKeepsPixelsSharp) {
  Frame checker = flat(64, 48, 200, 30, 60);
  for (int i = 0; i < 64 * 48; i += 2) checker.pixels[i * 3] = 0;
  Frame grey;
  grey.width = 64;
  grey.height = 48;
  grey.channels = 1;
  grey.pixels.assign(64 * 48, 77);
  write_strip("Prediction", {{"input", "frame 9", checker}, {"output", "", grey}, {"none", "", {}}},
              folder / "strip.png");
  const cv::Mat picture = cv::imread(folder / "strip.png", cv::IMREAD_COLOR);
  ASSERT_FALSE(picture.empty());
  EXPECT_GE(picture.cols, 2 * 320);
  // Each pixel five wide and high, none mixed with its neighbour.
  int exact = 0;
  for (int y = 0; y < picture.rows; ++y) {
    for (int x = 0; x < picture.cols; ++x) {
      const cv::Vec3b pixel = picture.at<cv::Vec3b>(y, x);
      exact += pixel == cv::Vec3b(60, 30, 200) || pixel == cv::Vec3b(60, 30, 0);
    }
  }
  EXPECT_EQ(exact, 64 * 48 * 25);
  EXPECT_GE(count_near(picture, {77, 77, 77}), 64 * 48 * 25);
}

TEST_F(Plot, AnUnwritablePathThrows) {
  put_bytes(folder / "file", "x");
  EXPECT_THROW(write_chart({}, folder / "file/chart.png"), std::runtime_error);
}

}  // namespace
}  // namespace millrace::io
