#include "io/queue/fitter.h"

#include <gtest/gtest.h>

namespace millrace::io {
namespace {

Frame picture(int width, int height, int channels) {
  Frame frame;
  frame.id = 12;
  frame.pts = std::chrono::seconds(3);
  frame.width = width;
  frame.height = height;
  frame.channels = channels;
  for (std::size_t i = 0; i < frame.bytes(); ++i) frame.pixels.push_back(std::uint8_t(i * 7));
  return frame;
}

TEST(Fitter, AFrameOfTheSizePassesUntouched) {
  const Frame frame = picture(6, 4, 3);
  Fitter asked(6, 4);
  EXPECT_EQ(&asked.fit(frame), &frame);
  Fitter first(0, 0);
  EXPECT_EQ(&first.fit(frame), &frame);
  EXPECT_EQ(first.width(), 6);
  EXPECT_EQ(first.height(), 4);
}

TEST(Fitter, TheFirstFrameSetsWhatWasNotAsked) {
  Fitter fitter(0, 0);
  fitter.fit(picture(6, 4, 3));
  const Frame other = picture(12, 8, 3);
  const Frame& fitted = fitter.fit(other);
  EXPECT_EQ(fitted.width, 6);
  EXPECT_EQ(fitted.height, 4);
  EXPECT_EQ(fitted.pixels.size(), 6u * 4u * 3u);
  EXPECT_EQ(fitted.id, 12);
  EXPECT_EQ(fitted.pts, other.pts);
}

TEST(Fitter, ShrinkingTakesTheMeanOfTheArea) {
  Frame frame = picture(4, 2, 1);
  frame.pixels = {10, 20, 100, 110,  //
                  30, 40, 120, 130};
  Fitter fitter(2, 1);
  EXPECT_EQ(fitter.fit(frame).pixels, (std::vector<std::uint8_t>{25, 115}));
}

TEST(Fitter, ChannelsStayApart) {
  Frame frame = picture(4, 4, 3);
  for (std::size_t i = 0; i < frame.pixels.size(); ++i) frame.pixels[i] = i % 3 == 0 ? 200 : 10;
  for (const int side : {2, 9}) {
    Fitter fitter(side, side);
    const Frame& fitted = fitter.fit(frame);
    ASSERT_EQ(fitted.pixels.size(), std::size_t(side) * side * 3);
    for (std::size_t i = 0; i < fitted.pixels.size(); ++i) {
      EXPECT_EQ(int(fitted.pixels[i]), i % 3 == 0 ? 200 : 10);
    }
  }
}

TEST(Fitter, EnlargingIsBetweenTheNeighbours) {
  Frame frame = picture(2, 1, 1);
  frame.pixels = {0, 200};
  Fitter fitter(4, 1);
  EXPECT_EQ(fitter.fit(frame).pixels, (std::vector<std::uint8_t>{0, 50, 150, 200}));
}

}  // namespace
}  // namespace millrace::io
