// A build without GStreamer and OpenCV says so in its errors.
#include <stdexcept>

#include <gtest/gtest.h>

#include "io/plot/plot.h"
#include "io/queue/resizer.h"
#include "io/source/source.h"
#include "io/video/video_writer.h"
#include "tests/io/reading.h"

namespace millrace::io {
namespace {

TEST(NoBackends, OnlyTheSyntheticSourceOpens) {
  EXPECT_EQ(open_error("synth:shapes"), "");
  EXPECT_NE(open_error("/clip.mp4").find("no GStreamer"), std::string::npos);
  EXPECT_NE(open_error("rtsp://u:p@h/").find("rtsp://***@h/: this build"), std::string::npos);
  EXPECT_NE(open_error("synt:shapes").find("synth"), std::string::npos);
  EXPECT_EQ(gstreamer_version(), "");
  EXPECT_EQ(opencv_version(), "");
}

TEST(NoBackends, FramesPassButAreNotScaled) {
  Frame frame;
  frame.reshape(4, 2, 1);
  EXPECT_EQ(&Resizer(4, 2).fit(frame), &frame);
  EXPECT_EQ(&Resizer(0, 0).fit(frame), &frame);
  EXPECT_THROW(Resizer(2, 2).fit(frame), std::runtime_error);
  EXPECT_THROW(write_chart({}, "x.png"), std::runtime_error);
  EXPECT_THROW(open_video_writer({.to = "x.mp4", .width = 8, .height = 8}), std::runtime_error);
}

}  // namespace
}  // namespace millrace::io
