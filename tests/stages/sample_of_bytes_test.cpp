// A sample's floats are the frame's bytes over 255, to the bit, each channel in its plane.
#include "stages/sample_of_bytes.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace millrace::stages {
namespace {

TEST(SampleOfBytes, IsEachByteOver255InItsPlane) {
  for (const std::int64_t channels : {1, 3}) {
    // All 256 values in every channel, and no two channels alike.
    at::Tensor bytes = at::empty({13, 31, channels}, at::kByte);
    auto* const in = bytes.mutable_data_ptr<std::uint8_t>();
    for (std::int64_t i = 0; i < bytes.numel(); ++i) in[i] = std::uint8_t(i * 37 + i / 256);
    at::Tensor sample;
    sample_of_bytes(bytes, sample);
    ASSERT_EQ(sample.sizes(), at::IntArrayRef({1, channels, 13, 31}));
    const float* const out = sample.const_data_ptr<float>();
    for (std::int64_t i = 0; i < bytes.numel(); ++i) {
      const std::int64_t pixel = i / channels, channel = i % channels;
      ASSERT_EQ(out[channel * 13 * 31 + pixel], float(in[i]) / 255.0f) << "at " << i;
    }
  }
}

TEST(SampleOfBytes, WritesWhereTheSampleIs) {
  const at::Tensor bytes = at::full({4, 5, 3}, 255, at::kByte);
  at::Tensor sample = at::zeros({1, 3, 4, 5});
  const float* const there = sample.const_data_ptr<float>();
  sample_of_bytes(bytes, sample);
  EXPECT_EQ(sample.const_data_ptr<float>(), there);
  EXPECT_TRUE(at::equal(sample, at::ones({1, 3, 4, 5})));
}

}  // namespace
}  // namespace millrace::stages
