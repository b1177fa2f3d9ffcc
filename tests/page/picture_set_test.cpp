#include "tools/page/picture_set.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>
#include <opencv2/imgcodecs.hpp>

namespace millrace::page {
namespace {

cv::Mat decoded(const Bytes& file) {
  return cv::imdecode(std::vector<char>(file->begin(), file->end()), cv::IMREAD_UNCHANGED);
}

/// The pictures of sample 258 that `draw` fills.
template <class Draw>
PictureSet drawn(const PictureShape& input, const PictureShape& output, const Draw& draw) {
  PictureBoard board(input, output);
  board.ask();
  draw(*board.room());
  board.show(258);
  return PictureSet(*board.take());
}

TEST(PictureSet, TheCamerasFrameIsOfLimitedSize) {
  io::Frame frame;
  EXPECT_TRUE(shown(frame).empty());
  frame.reshape(1920, 8, 3);
  for (std::size_t i = 0; i < frame.pixels.size(); i += 3) frame.pixels[i] = 250;  // red
  const cv::Mat small = shown(frame);
  EXPECT_EQ(small.size(), cv::Size(960, 4));
  EXPECT_EQ(small.at<cv::Vec3b>(2, 500), cv::Vec3b(0, 0, 250));
}

TEST(PictureSet, KeepsColoursAndPixels) {
  const PictureShape shape{.channels = 3, .height = 48, .width = 64};
  PictureSet set = drawn(shape, shape, [](Pictures& room) {
    const std::size_t plane = 48 * 64;
    for (std::size_t i = 0; i < plane; ++i) {
      room.input[i] = i % 64 < 32 ? 1.0f : 0.0f;  // red on the left
      room.input[2 * plane + i] = i % 64 < 32 ? 0.0f : 1.0f;
      room.target[i] = room.target[plane + i] = room.target[2 * plane + i] = 0.5f;
      for (const std::size_t c : {0, 1, 2})
        room.prediction[c * plane + i] = i < plane / 2 ? 0.5f : 9;
    }
  });

  const cv::Mat input = decoded(set.jpeg(0));
  ASSERT_EQ(input.size(), cv::Size(128, 96)) << "small pictures are doubled";
  EXPECT_GT(input.at<cv::Vec3b>(48, 62)[2], 240);
  EXPECT_LT(input.at<cv::Vec3b>(48, 62)[0], 15);
  EXPECT_GT(input.at<cv::Vec3b>(48, 65)[0], 240);
  const cv::Mat error = decoded(set.jpeg(3));
  EXPECT_LT(cv::norm(error.at<cv::Vec3b>(20, 60)), 30) << "no error is black";
  EXPECT_GT(cv::norm(error.at<cv::Vec3b>(80, 60)), 250) << "values beyond 1 count as they are";
  EXPECT_EQ(set.jpeg(0), set.jpeg(0)) << "made once";

  const std::string message = *set.message();
  EXPECT_EQ(std::uint8_t(message[0]), 2);
  EXPECT_EQ(std::uint8_t(message[1]), 1);
  std::size_t sum = 28;
  for (std::size_t i = 0; i < 4; ++i) sum += set.jpeg(i)->size();
  EXPECT_EQ(message.size(), sum);
  EXPECT_EQ(message.substr(28, set.jpeg(0)->size()), *set.jpeg(0));
}

TEST(PictureSet, PixelsHaveTheColourOfTheirClass) {
  const PictureShape shape{.channels = 1, .height = 16, .width = 32, .classes = true};
  PictureSet set = drawn({.channels = 3, .height = 16, .width = 32}, shape, [](Pictures& room) {
    for (std::size_t i = 0; i < 16 * 32; ++i) {
      const bool left = i % 32 < 16, top = i < 8 * 32;
      room.target[i] = left ? 1 : top ? 2 : -1;
      room.prediction[i] = left ? 1 : 3;
    }
  });
  using Colour = std::array<int, 3>;
  const auto colour = [&](std::size_t picture, int y, int x) {
    const auto pixel = decoded(set.jpeg(picture)).at<cv::Vec3b>(2 * y, 2 * x);
    const auto level = [&](int c) { return (pixel[c] + 16) / 32 * 32; };  // JPEG is near
    return Colour{level(2), level(1), level(0)};
  };
  EXPECT_EQ(colour(1, 4, 8), (Colour{128, 0, 0})) << "Pascal VOC's class 1";
  EXPECT_EQ(colour(1, 4, 24), (Colour{0, 128, 0}));
  EXPECT_EQ(colour(1, 12, 24), (Colour{224, 224, 192})) << "of no class";
  EXPECT_EQ(colour(2, 12, 24), (Colour{128, 128, 0}));
  EXPECT_EQ(colour(3, 4, 8), (Colour{0, 0, 0})) << "told right";
  EXPECT_GT(colour(3, 4, 24)[0], 200) << "told wrong";
  EXPECT_EQ(colour(3, 12, 24), (Colour{0, 0, 0})) << "neither";
}

TEST(PictureSet, ATargetThatIsNotThereIsBlackAndLargePicturesKeepTheirSize) {
  const PictureShape shape{.channels = 1, .height = 200, .width = 160};
  PictureSet set = drawn(shape, shape, [](Pictures& room) {
    std::ranges::fill(room.prediction, 0.5f);
    std::ranges::fill(room.target, std::nanf(""));
  });
  EXPECT_EQ(cv::countNonZero(decoded(set.jpeg(1))), 0);
  EXPECT_EQ(decoded(set.jpeg(2)).size(), cv::Size(160, 200));
  EXPECT_EQ(decoded(set.jpeg(2)).channels(), 1);
  EXPECT_EQ(decoded(set.jpeg(3)).channels(), 3);
  EXPECT_LT(cv::norm(decoded(set.jpeg(3)).at<cv::Vec3b>(9, 9)), 30) << "nothing to err from";
}

}  // namespace
}  // namespace millrace::page
