#include <gtest/gtest.h>
#include <opencv2/imgcodecs.hpp>

#include "io/queue/targets.h"
#include "tests/complaint.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using Masks = FolderTest;

TEST_F(Masks, OfOneBitAreClassesZeroAndOne) {
  cv::Mat mask = cv::Mat::zeros(2, 3, CV_8UC1);
  mask.at<std::uint8_t>(1, 2) = 255;
  ASSERT_TRUE(cv::imwrite(folder / "0.png", mask, {cv::IMWRITE_PNG_BILEVEL, 1}));
  put_bytes(folder / "1.pbm", "P1 3 2 1 1 1 1 1 0");  // 1 is black
  const Teller teller = mask_teller(folder.path(), 2, {.width = 3, .height = 2}, 3, 2);
  for (int n = 0; n < 2; ++n) {
    Frame frame;
    frame.reshape(3, 2, 3);
    teller.tell(frame, n, {});
    EXPECT_EQ(frame.target, std::vector<float>({1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 1})) << n;
  }
  put_bytes(folder / "0.png", "no picture");
  EXPECT_NE(complaint<MaskError>([&] { require_masks(folder.path()); }), "");
}

}  // namespace
}  // namespace millrace::io
