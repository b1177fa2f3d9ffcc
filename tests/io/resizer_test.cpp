#include "io/queue/resizer.h"

#include <gtest/gtest.h>

namespace millrace::io {
namespace {

Frame picture(int width, int height, int channels) {
  Frame frame{.id = 12, .pts = std::chrono::seconds(3), .label = 3};
  frame.reshape(width, height, channels);
  for (std::size_t i = 0; i < frame.bytes(); ++i) frame.pixels[i] = std::uint8_t(i * 7);
  return frame;
}

TEST(Resizer, AFrameOfTheSizePassesUntouchedAndTheFirstSetsWhatWasNotAsked) {
  const Frame frame = picture(6, 4, 3);
  EXPECT_EQ(&Resizer(6, 4).fit(frame), &frame);
  Resizer resizer(0, 0);
  EXPECT_EQ(&resizer.fit(frame), &frame);
  EXPECT_EQ(resizer.width(), 6);
  EXPECT_EQ(resizer.height(), 4);
  const Frame other = picture(12, 8, 3);
  const Frame& fitted = resizer.fit(other);
  EXPECT_EQ(fitted.width, 6);
  EXPECT_EQ(fitted.height, 4);
  EXPECT_EQ(fitted.pixels.size(), 6u * 4u * 3u);
  EXPECT_EQ(fitted.id, 12);
  EXPECT_EQ(fitted.label, 3);
  EXPECT_EQ(fitted.pts, other.pts);
}

TEST(Resizer, ShrinkingTakesTheMeanOfTheAreaAndEnlargingIsBetweenTheNeighbours) {
  Frame frame = picture(4, 2, 1);
  frame.pixels = {10, 20, 100, 110,  //
                  30, 40, 120, 130};
  Resizer resizer(2, 1);
  EXPECT_EQ(resizer.fit(frame).pixels, (std::vector<std::uint8_t>{25, 115}));
  frame = picture(2, 1, 1);
  frame.pixels = {0, 200};
  EXPECT_EQ(Resizer(4, 1).fit(frame).pixels, (std::vector<std::uint8_t>{0, 50, 150, 200}));
}

TEST(Resizer, ChannelsStayApart) {
  Frame frame = picture(4, 4, 3);
  for (std::size_t i = 0; i < frame.pixels.size(); ++i) frame.pixels[i] = i % 3 == 0 ? 200 : 10;
  for (const int side : {2, 9}) {
    Resizer resizer(side, side);
    const Frame& fitted = resizer.fit(frame);
    ASSERT_EQ(fitted.pixels.size(), std::size_t(side) * side * 3);
    for (std::size_t i = 0; i < fitted.pixels.size(); ++i) {
      EXPECT_EQ(int(fitted.pixels[i]), i % 3 == 0 ? 200 : 10);
    }
  }
}

/// A picture whose every pixel tells its place: 10 * row + column.
Frame ruled(int width, int height) {
  Frame frame = picture(width, height, 1);
  for (int i = 0; i < width * height; ++i)
    frame.pixels[i] = std::uint8_t(i / width * 10 + i % width);
  return frame;
}

TEST(Resizer, ARegionOfTheSizeIsCopiedBitForBit) {
  Resizer resizer({.region = {1, 2, 3, 2}});
  EXPECT_EQ(resizer.fit(ruled(5, 5)).pixels, (std::vector<std::uint8_t>{21, 22, 23, 31, 32, 33}));
  EXPECT_EQ(resizer.width(), 3);
  EXPECT_EQ(resizer.height(), 2);
}

TEST(Resizer, ARegionOutsideASmallerFrameIsClipped) {
  Resizer resizer({.width = 2, .height = 2, .region = {3, 3, 2, 2}});
  EXPECT_EQ(resizer.fit(ruled(5, 5)).pixels, (std::vector<std::uint8_t>{33, 34, 43, 44}));
  for (const int side : {1, 3, 4}) EXPECT_EQ(resizer.fit(ruled(side, side)).pixels.size(), 4u);
}

TEST(Resizer, CroppingTakesTheCentreOfTheRightShape) {
  Resizer resizer({.width = 2, .height = 2, .fit = Fit::crop});
  EXPECT_EQ(resizer.fit(ruled(6, 2)).pixels, (std::vector<std::uint8_t>{2, 3, 12, 13}));
  EXPECT_EQ(resizer.fit(ruled(2, 6)).pixels, (std::vector<std::uint8_t>{20, 21, 30, 31}));
}

TEST(Resizer, PaddingKeepsAllOfThePictureBetweenBlackBars) {
  Resizer resizer({.width = 4, .height = 4, .fit = Fit::pad});
  EXPECT_EQ(resizer.fit(ruled(4, 2)).pixels,
            (std::vector<std::uint8_t>{0, 0, 0, 0, 0, 1, 2, 3, 10, 11, 12, 13, 0, 0, 0, 0}));
  // The storage is reused: bars are black again after a picture that had none there.
  resizer.fit(ruled(2, 4));
  EXPECT_EQ(resizer.fit(ruled(4, 2)).pixels[0], 0);
}

TEST(Placement, KeepsTheShapeOfACamera) {
  const Region camera{0, 0, 720, 528};
  EXPECT_EQ(place(camera, 64, 64, Fit::stretch).from, camera);
  EXPECT_EQ(place(camera, 64, 64, Fit::crop).from, (Region{96, 0, 528, 528}));
  EXPECT_EQ(place(camera, 64, 64, Fit::pad).to, (Region{0, 8, 64, 47}));
  EXPECT_EQ(place({100, 50, 200, 100}, 64, 64, Fit::crop).from, (Region{150, 50, 100, 100}));
  EXPECT_EQ(place({0, 0, 10000, 1}, 64, 64, Fit::pad).to, (Region{0, 31, 64, 1}));
}

TEST(Placement, MustLieWithinThePictureAndALostShapeIsReported) {
  EXPECT_TRUE(lies_within({}, 4, 4) && lies_within({2, 2, 2, 2}, 4, 4));
  EXPECT_FALSE(lies_within({3, 2, 2, 2}, 4, 4) || lies_within({9, 9, 2, 2}, 4, 4));
  EXPECT_EQ(squash_note({0, 0, 720, 528}, 64, 64, Fit::stretch),
            "frames of 720x528 are squashed to 64x64; source.fit = \"crop\" or \"pad\" keeps "
            "their shape");
  EXPECT_EQ(squash_note({0, 0, 720, 528}, 64, 64, Fit::pad), "");
  EXPECT_EQ(squash_note({0, 0, 768, 576}, 128, 96, Fit::stretch), "");
}

}  // namespace
}  // namespace millrace::io
