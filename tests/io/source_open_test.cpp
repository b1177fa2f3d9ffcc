// Which backend opens what, and the errors if none can.
#include <csignal>
#include <future>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "io/source/source.h"
#include "io/source/source_kinds.h"
#include "tests/io/reading.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using OpenSource = FolderTest;

TEST_F(OpenSource, AnUnknownSchemeGetsTheListOfThoseThereAre) {
  EXPECT_EQ(open_error("rtps://u:p@host/x"),
            "rtps://***@host/x: unknown scheme \"rtps\"; known ones: file, rtsp, rtsps, http, "
            "https, v4l2, gst, images, synth");
  EXPECT_EQ(scheme_error("ftp://host/x").find("unknown scheme \"ftp\""), 0u);
}

TEST_F(OpenSource, EveryKindsOwnExampleIsOfThatKind) {
  for (const SourceKind& kind : source_kinds()) {
    EXPECT_EQ(source_kind(kind.example), &kind) << kind.example;
    EXPECT_EQ(scheme_error(kind.example), "");
  }
  EXPECT_STREQ(source_kind("clip.mp4")->scheme, "file");
}

TEST_F(OpenSource, SaysWhyAFileCannotBeRead) {
  put_bytes(folder / "empty.mp4", "");
  EXPECT_EQ(open_error("/no/such/clip.mp4"), "/no/such/clip.mp4: no such file");
  EXPECT_EQ(open_error("file:///no/such/clip.mp4"), "file:///no/such/clip.mp4: no such file");
  EXPECT_EQ(open_error(folder / "empty.mp4"), folder / "empty.mp4: the file is empty");
  EXPECT_NE(open_error(folder.path()).find("is a folder"), std::string::npos);
  EXPECT_NE(open_error("v4l2:///dev/video_none").find("no such device"), std::string::npos);
}

TEST_F(OpenSource, RefusesOddRequests) {
  EXPECT_EQ(open_error(""), "source: no URI is given");
  EXPECT_NE(open_error(SourceOptions{.uri = "synth:shapes", .channels = 4}).find("channels"),
            std::string::npos);
}

TEST_F(OpenSource, ATextIsNoVideo) {
  put_bytes(folder / "clip.mp4", std::string(4000, 'x') + "\n just text \n");
  const std::string error = open_error(folder / "clip.mp4");
  EXPECT_EQ(error.find(folder / "clip.mp4: "), 0u) << error;
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

TEST_F(OpenSource, APipeThatNobodyWritesToIsGivenUpInTime) {
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  SourceOptions options;
  options.uri = pipe;
  options.reconnect.open_limit = std::chrono::milliseconds(100);
  EXPECT_EQ(open_error(options), pipe + ": no picture came within 100 ms");
}

TEST_F(OpenSource, APipeWhoseWriterStallsCanBeClosed) {
  std::signal(SIGPIPE, SIG_IGN);
  const TestFolder folder;
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string clip = bytes_of("/usr/share/doc/opencv-doc/examples/data/vtest.avi");
  std::promise<void> closed;
  std::thread writer([&] {
    const int file = ::open(pipe.c_str(), O_WRONLY | O_CLOEXEC);
    for (std::size_t done = 0; done < clip.size() / 20;) {
      const ssize_t wrote = ::write(file, &clip[done], clip.size() / 20 - done);
      if (wrote < 0) break;
      done += std::size_t(wrote);
    }
    closed.get_future().wait();  // it never goes on
    ::close(file);
  });
  SourceOptions options;
  options.uri = pipe;
  std::unique_ptr<Source> source = open_source(options);
  Frame frame;
  EXPECT_EQ(source->read(frame, std::chrono::seconds(60)), ReadStatus::frame);
  EXPECT_EQ(frame.width, 768);
  while (source->read(frame, std::chrono::milliseconds(100)) == ReadStatus::frame) {
  }
  source.reset();
  closed.set_value();
  writer.join();
}

TEST(Versions, AreKnown) {
  EXPECT_EQ(gstreamer_version().find("1."), 0u);
  EXPECT_EQ(opencv_version().find("4."), 0u);
}

}  // namespace
}  // namespace millrace::io
