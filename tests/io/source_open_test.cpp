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

TEST_F(OpenSource, EveryKindsOwnExampleIsOfThatKind) {
  for (const SourceKind& kind : source_kinds()) {
    EXPECT_EQ(source_kind(kind.example), &kind) << kind.example;
    EXPECT_EQ(scheme_error(kind.example), "");
  }
  EXPECT_STREQ(source_kind("clip.mp4")->scheme, "file");
}

TEST_F(OpenSource, SaysWhatIsWrong) {
  EXPECT_EQ(
      open_error("rtps://u:p@host/x"),
      "rtps://***@host/x: unknown scheme \"rtps\"; known ones: file, rtsp, rtsps, http, https, "
      "v4l2, gst, images, synth");
  EXPECT_EQ(open_error(""), "source: no URI is given");
  expect_refused(folder.path(), "is a folder");
  expect_refused("v4l2:///dev/video_none", "no such device");
  EXPECT_NE(open_error(SourceOptions{.uri = "synth:shapes", .channels = 4}).find("channels"),
            std::string::npos);
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

}  // namespace
}  // namespace millrace::io
