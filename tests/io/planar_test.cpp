// A sample's floats are a picture's bytes over 255, to the bit, whatever the size.
#include "io/queue/planar.h"

#include <gtest/gtest.h>

namespace millrace::io {
namespace {

Frame picture(int width, int height, int channels) {
  Frame frame{.width = width, .height = height, .channels = channels, .pixels = {}};
  frame.pixels.resize(frame.bytes());
  // Every value in every channel, and no two neighbours alike.
  for (std::size_t i = 0; i < frame.bytes(); ++i) frame.pixels[i] = std::uint8_t(i * 37 + i / 256);
  return frame;
}

TEST(Planar, IsEachByteOver255InItsPlaneAndComesBackTheSame) {
  // Below, at and beyond the blocks that vectors take; sizes of no round number.
  for (const int channels : {1, 3}) {
    for (const auto& [width, height] :
         {std::pair(1, 1), {63, 1}, {64, 1}, {65, 1}, {13, 7}, {64, 48}, {101, 67}}) {
      const Frame frame = picture(width, height, channels);
      const std::size_t plane = std::size_t(width) * height;
      std::vector<float> out(frame.bytes() + 1, -1.0f);
      to_planar(frame, out.data());
      for (std::size_t i = 0; i < frame.bytes(); ++i) {
        const std::size_t pixel = i / channels, channel = i % channels;
        ASSERT_EQ(out[channel * plane + pixel], float(frame.pixels[i]) / 255.0f)
            << width << "x" << height << "x" << channels << " at " << i;
      }
      EXPECT_EQ(out.back(), -1.0f) << "nothing is written beyond";
      EXPECT_EQ(from_planar(out.data(), channels, height, width).pixels, frame.pixels);
    }
  }
}

}  // namespace
}  // namespace millrace::io
