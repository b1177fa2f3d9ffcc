// Which backend opens what, and what is said where none can.
#include <gtest/gtest.h>

#include "io/source/source.h"
#include "io/source/source_kinds.h"
#include "io/source/versions.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

std::string error_of(const std::string& uri, int channels = 3) {
  SourceOptions options;
  options.uri = uri;
  options.channels = channels;
  try {
    open_source(options);
  } catch (const SourceError& refused) {
    return refused.what();
  }
  return "";
}

TEST(OpenSource, NamesTheNearestScheme) {
  EXPECT_EQ(error_of("rtps://u:p@host/x"),
            "rtps://***@host/x: unknown scheme \"rtps\"; the nearest known one is \"rtsp\"");
  EXPECT_NE(error_of("synt:shapes").find("\"synth\""), std::string::npos);
}

TEST(OpenSource, SaysWhyAFileCannotBeRead) {
  const TestFolder folder;
  put_bytes(folder / "empty.mp4", "");
  EXPECT_EQ(error_of("/no/such/clip.mp4"), "/no/such/clip.mp4: no such file");
  EXPECT_EQ(error_of("file:///no/such/clip.mp4"), "file:///no/such/clip.mp4: no such file");
  EXPECT_EQ(error_of(folder / "empty.mp4"), folder / "empty.mp4: the file is empty");
  EXPECT_NE(error_of(folder.path()).find("is a folder"), std::string::npos);
  EXPECT_NE(error_of("v4l2:///dev/video_none").find("no such device"), std::string::npos);
}

TEST(OpenSource, RefusesOddRequests) {
  EXPECT_EQ(error_of(""), "source: no URI is given");
  EXPECT_NE(error_of("synth:shapes", 4).find("channels"), std::string::npos);
}

TEST(OpenSource, ATextIsNoVideo) {
  const TestFolder folder;
  put_bytes(folder / "clip.mp4", std::string(4000, 'x') + "\n just text \n");
  const std::string error = error_of(folder / "clip.mp4");
  EXPECT_EQ(error.find(folder / "clip.mp4: "), 0u) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

TEST(Versions, AreKnown) {
  EXPECT_EQ(gstreamer_version().find("1."), 0u);
  EXPECT_EQ(opencv_version().find("4."), 0u);
}

}  // namespace
}  // namespace millrace::io
