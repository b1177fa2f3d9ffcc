// Videos written and read again, or served and watched.
#include "io/video/video_writer.h"

#include <random>
#include <thread>

#include <malloc.h>

#include <gtest/gtest.h>
#include <opencv2/core.hpp>

#include "io/source/source.h"
#include "tests/complaint.h"
#include "tests/io/loopback.h"
#include "tests/io/reading.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using VideoFile = FolderTest;

using std::chrono::milliseconds, std::chrono::seconds;

constexpr std::uint8_t kLeft[] = {200, 40, 60};
constexpr std::uint8_t kRight[] = {30, 90, 210};

// Two colours side by side, and a bar that moves from top to bottom in ten frames.
Frame numbered(int number, int width, int height, int channels = 3) {
  // A video need not start at 0.
  Frame frame{.id = number, .pts = number * milliseconds(100) + seconds(7)};
  frame.reshape(width, height, channels);
  std::uint8_t* to = frame.pixels.data();
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const std::uint8_t* const colour = 2 * x < width ? kLeft : kRight;
      const bool bar = y * 10 / height == number % 10;
      for (int c = 0; c < channels; ++c) *to++ = bar ? 255 : colour[c];
    }
  }
  return frame;
}

// Of a 3 x 3 square around a place, given as fractions of the sides.
double mean(const Frame& frame, double across, double down, int channel) {
  const cv::Mat all = cv::Mat(frame.pixels).reshape(frame.channels, frame.height);
  const int x = int(across * frame.width), y = int(down * frame.height);
  return cv::mean(all(cv::Rect(x - 1, y - 1, 3, 3)))[channel];
}

void expect_colours(const Frame& frame, double down) {
  for (int c = 0; c < frame.channels; ++c) {
    EXPECT_NEAR(mean(frame, 0.25, down, c), kLeft[c], 25) << c;
    EXPECT_NEAR(mean(frame, 0.75, down, c), kRight[c], 25) << c;
  }
}

VideoWriterOptions writer_options(const std::string& to, int width = 64, int height = 48) {
  return {.to = to, .width = width, .height = height, .fps = 10.0};
}

// Writes each frame when there is room for it.
void write_all(VideoWriter& writer, int frames, int width, int height, int channels = 3) {
  for (int n = 0; n < frames; ++n) {
    const std::int64_t before = writer.written();
    const Clock::time_point limit = Clock::now() + seconds(10);
    const Frame frame = numbered(n, width, height, channels);
    while (writer.written() == before && Clock::now() < limit) {
      writer.write(frame);
      if (writer.written() == before) std::this_thread::sleep_for(milliseconds(2));
    }
  }
}

std::string refusal(const std::string& to) {
  return complaint<std::runtime_error>([&] { open_video_writer(writer_options(to)); });
}

TEST_F(VideoFile, WhatIsWrittenCanBeRead) {
  for (const std::string name : {"new/out.mp4", "new/out.mkv"}) {
    const auto writer = open_video_writer(writer_options(folder / name));
    write_all(*writer, 30, 64, 48);
    EXPECT_FALSE(std::filesystem::exists(folder / name)) << "not before it is whole";
    writer->finish();
    EXPECT_FALSE(std::filesystem::exists(folder / name + ".part"));
    EXPECT_EQ(writer->written(), 30);
    const Seen seen = read_uri(folder / name);
    EXPECT_EQ(seen.error, "");
    ASSERT_EQ(seen.frames.size(), 30u) << name;
    for (int n = 0; n < 30; ++n) {
      const Frame& frame = seen.frames[n];
      ASSERT_EQ(frame.width, 64);
      ASSERT_EQ(frame.height, 48);
      EXPECT_NEAR(double((frame.pts - seen.frames[0].pts).count()) / 1e6, 100.0 * n, 2.0);
      expect_colours(frame, n % 10 < 5 ? 0.8 : 0.2);
      EXPECT_GT(mean(frame, 0.5, (n % 10 + 0.5) / 10, 0), 200) << "the bar of " << n;
    }
  }
}

TEST_F(VideoFile, GreyAndOddAndTinyPicturesAreWrittenAsWell) {
  struct Case {
    std::string name;
    int width, height, channels, times;  ///< by which its sides grow
  };
  for (const auto& [name, width, height, channels, times] :
       {Case{"odd.mkv", 37, 21, 1, 2}, Case{"tiny.mp4", 8, 6, 3, 3}}) {
    VideoWriterOptions options = writer_options(folder / name, width, height);
    options.channels = channels;
    const auto writer = open_video_writer(options);
    write_all(*writer, 10, width, height, channels);
    writer->finish();
    const Seen seen = read_uri(folder / name, channels);
    ASSERT_EQ(seen.frames.size(), 10u) << name;
    EXPECT_EQ(seen.frames[0].width, times * width) << name;
    EXPECT_EQ(seen.frames[0].height, times * height) << name;
    EXPECT_EQ(seen.frames[0].channels, channels) << name;
    if (channels == 1) expect_colours(seen.frames[5], 0.8);
  }
}

TEST_F(VideoFile, WhatWasBrokenOffCanBePlayed) {
  for (const std::string name : {"out.mp4", "out.mkv"}) {
    const auto writer = open_video_writer(writer_options(folder / name));
    write_all(*writer, 100, 64, 48);
    // What a crash would leave: the bytes that are there, seen a moment later.
    const Clock::time_point limit = Clock::now() + seconds(60);
    std::size_t frames = 0;
    while (frames < 70 && Clock::now() < limit) {
      std::this_thread::sleep_for(milliseconds(100));
      put_bytes(folder / "left_" + name, bytes_of(folder / name + ".part"));
      frames = read_uri(folder / "left_" + name).frames.size();
    }
    EXPECT_GE(frames, 70u) << name << ": of 10 s all but the last few";
    writer->finish();
    EXPECT_EQ(read_uri(folder / name).frames.size(), 100u);
  }
}

TEST_F(VideoFile, TheWriterIsNeverHeldUp) {
  const auto writer = open_video_writer(writer_options(folder / "out.mkv", 640, 480));
  Frame moving = numbered(0, 640, 480);
  for (int n = 0; n < 500; ++n) {
    moving.pts = n * milliseconds(10);
    writer->write(moving);
  }
  EXPECT_GT(writer->dropped(), 0);
  EXPECT_EQ(writer->written() + writer->dropped(), 500);
  writer->finish();
  EXPECT_EQ(std::int64_t(read_uri(folder / "out.mkv").frames.size()), writer->written());
}

TEST_F(VideoFile, AFileThereWasStaysUntilTheNewOneIsWholeAndTwoRunsNeverWriteOne) {
  put_bytes(folder / "out.mp4", "old");
  const auto writer = open_video_writer(writer_options(folder / "out.mp4"));
  write_all(*writer, 3, 64, 48);
  EXPECT_EQ(bytes_of(folder / "out.mp4"), "old");
  writer->finish();
  EXPECT_EQ(read_uri(folder / "out.mp4").frames.size(), 3u);
  { const auto none = open_video_writer(writer_options(folder / "none.mp4")); }
  EXPECT_FALSE(std::filesystem::exists(folder / "none.mp4")) << "no frames, no file";
  EXPECT_FALSE(std::filesystem::exists(folder / "none.mp4.part"));
  {
    const auto one = open_video_writer(writer_options(folder / "two.mp4"));
    EXPECT_EQ(refusal(folder / "two.mp4"), folder / "two.mp4: another run writes it");
  }
  EXPECT_NO_THROW(open_video_writer(writer_options(folder / "two.mp4")));
}

TEST_F(VideoFile, RefusalsNameTheFile) {
  EXPECT_NE(refusal(folder / "out.gif").find("out.gif: a video is"), std::string::npos);
  EXPECT_NE(refusal("/proc/no/out.mp4").find("/proc/no/out.mp4: "), std::string::npos);
  std::filesystem::create_directory(folder / "is.mp4");
  EXPECT_NE(refusal(folder / "is.mp4").find("folder"), std::string::npos);
  std::filesystem::create_directory(folder / "x.mp4.part");
  EXPECT_NE(refusal(folder / "x.mp4").find("x.mp4: "), std::string::npos);
  const auto writer = open_video_writer(writer_options(folder / "out.mp4"));
  EXPECT_THROW(writer->write(numbered(0, 32, 48)), std::invalid_argument);
}

TEST_F(VideoFile, AFullDiskIsToldAtTheEnd) {
  std::filesystem::create_symlink("/dev/full", folder / "out.mkv.part");
  const auto writer = open_video_writer(writer_options(folder / "out.mkv", 320, 240));
  write_all(*writer, 3, 320, 240);
  EXPECT_THROW(writer->finish(), std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(folder / "out.mkv"));
}

/// Writes some frames in turn at 25 a second until it is stopped; none given: eight pictures.
std::jthread film(VideoWriter& writer, std::vector<Frame> frames = {}) {
  for (int n = 0; frames.size() < 8; ++n) frames.push_back(numbered(n, 64, 48));
  return std::jthread([&writer, frames = std::move(frames)](std::stop_token stop) {
    for (std::size_t n = 0; !stop.stop_requested(); ++n) {
      writer.write(frames[n % frames.size()]);
      std::this_thread::sleep_for(milliseconds(40));
    }
  });
}

// Pictures that no encoder can compress much.
std::vector<Frame> noise(int count, int width, int height) {
  std::vector<Frame> frames;
  std::minstd_rand random;
  for (int n = 0; n < count; ++n) {
    Frame& frame = frames.emplace_back(numbered(n, width, height));
    for (std::uint8_t& value : frame.pixels) value = std::uint8_t(100 + random() % 60);
  }
  return frames;
}

int port_of(const std::string& uri) {
  return std::stoi(uri.substr(uri.rfind(':') + 1));
}

/// Starts to play a stream, by default over its own TCP connection, and then never reads it.
class SlowViewer {
 public:
  explicit SlowViewer(const std::string& uri,
                      const std::string& transport = "RTP/AVP/TCP;unicast;interleaved=0-1")
      : socket_(connected(port_of(uri), 2048)) {
    ask("DESCRIBE " + uri + " RTSP/1.0\r\nCSeq: 1\r\nAccept: application/sdp\r\n\r\n");
    const std::string set_up = ask("SETUP " + uri +
                                   "/stream=0 RTSP/1.0\r\nCSeq: 2\r\n"
                                   "Transport: " +
                                   transport + "\r\n\r\n");
    const std::size_t at = set_up.find("Session: ");
    if (at == std::string::npos) return;
    const std::string session = set_up.substr(at + 9, set_up.find_first_of(";\r", at + 9) - at - 9);
    plays = ask("PLAY " + uri + " RTSP/1.0\r\nCSeq: 3\r\nSession: " + session + "\r\n\r\n")
                .find("200 OK") != std::string::npos;
  }
  bool plays = false;

 private:
  std::string ask(const std::string& request) {
    ::send(socket_.get(), request.data(), request.size(), MSG_NOSIGNAL);
    std::string answer(4096, 0);
    const ssize_t length = ::recv(socket_.get(), answer.data(), answer.size(), 0);
    return answer.substr(0, length > 0 ? std::size_t(length) : 0);
  }
  Descriptor socket_;
};

// True if so many frames come; the last of them is in `frame`.
bool frames_come(Source& source, int count, Frame& frame) {
  const Clock::time_point end = Clock::now() + seconds(10);
  while (count > 0 && Clock::now() < end) {
    if (source.read(frame, milliseconds(20)) == ReadStatus::frame) --count;
  }
  return count == 0;
}

void expect_pictures(Source& source, int count) {
  Frame frame;
  ASSERT_TRUE(frames_come(source, count, frame));
  EXPECT_EQ(frame.width, 64);
  EXPECT_NEAR(mean(frame, 0.25, 0.5, 0), kLeft[0], 60);
  EXPECT_NEAR(mean(frame, 0.75, 0.5, 2), kRight[2], 60);
}

TEST(VideoServer, SeveralMayLookOn) {
  const auto writer = open_video_writer(writer_options("rtsp://:0/seen"));
  EXPECT_EQ(writer->where().find("rtsp://127.0.0.1:"), 0u) << writer->where();
  std::jthread camera = film(*writer);
  std::this_thread::sleep_for(milliseconds(200));
  EXPECT_EQ(writer->written(), 0) << "nobody looks on, nothing is encoded";
  const auto one = open_source({.uri = writer->where()});
  expect_pictures(*one, 20);
  const auto two = open_source({.uri = writer->where()});
  expect_pictures(*two, 20);
  expect_pictures(*one, 20);
  EXPECT_GT(writer->written(), 30);
  camera = {};
  writer->finish();
}

TEST(VideoServer, ASlowViewerHoldsUpNobody) {
  VideoWriterOptions options = writer_options("rtsp://:0/noise", 640, 480);
  options.fps = 300.0;  // for more bits
  const auto writer = open_video_writer(options);
  std::jthread camera = film(*writer, noise(8, 640, 480));
  const auto source = open_source({.uri = writer->where(), .reconnect = {.enabled = false}});
  SlowViewer slow(writer->where());
  EXPECT_TRUE(slow.plays);
  Frame frame;
  EXPECT_TRUE(frames_come(*source, 100, frame)) << "4 s, of which 2 fill the slow one's socket";
  camera = {};
  EXPECT_LT(writer->dropped(), 50);
}

TEST(VideoServer, AViewerByUdpThatVanishesIsNotSentToForEver) {
  VideoWriterOptions options = writer_options("rtsp://:0");
  options.patience = seconds(1);
  const auto writer = open_video_writer(options);
  std::jthread camera = film(*writer);
  EXPECT_TRUE(SlowViewer(writer->where(), "RTP/AVP;unicast;client_port=47110-47111").plays);
  const Clock::time_point end = Clock::now() + seconds(20);
  std::int64_t before = -1;
  while (Clock::now() < end && (writer->written() == 0 || writer->written() != before)) {
    before = writer->written();
    std::this_thread::sleep_for(milliseconds(500));
  }
  EXPECT_GT(before, 0) << "it was sent pictures";
  EXPECT_EQ(writer->written(), before) << "and is sent no more";
}

TEST(VideoServer, WhereOthersReachItViewersNeedThePassword) {
  EXPECT_NE(refusal("rtsp://0.0.0.0:0/live").find("needs rtsp://USER:PASSWORD@0.0.0.0"),
            std::string::npos);
  EXPECT_EQ(refusal("rtsp://u:@0.0.0.0:0/live").find("0.0.0.0"), std::string("rtsp://***@").size());
  const auto writer = open_video_writer(writer_options("rtsp://eve:pass%20word@127.0.0.1:0/live"));
  EXPECT_EQ(writer->where().find("pass"), std::string::npos);
  std::jthread camera = film(*writer);
  const std::string rest = writer->where().substr(std::string("rtsp://").size());
  EXPECT_THROW(open_source({.uri = "rtsp://" + rest}), SourceError);
  EXPECT_THROW(open_source({.uri = "rtsp://eve:password@" + rest}), SourceError);
  expect_pictures(*open_source({.uri = "rtsp://eve:pass%20word@" + rest}), 5);
}

TEST(VideoServer, SilentConnectionsGiveWay) {
  const auto writer = open_video_writer(writer_options("rtsp://eve:password@127.0.0.1:0/live"));
  std::jthread camera = film(*writer);
  const int port = port_of(writer->where());
  std::vector<Descriptor> crowd;
  for (int i = 0; i < 100; ++i) crowd.push_back(connected(port));
  char byte;
  for (int i = 0; i < 30; ++i)
    EXPECT_EQ(::recv(crowd[std::size_t(i)].get(), &byte, 1, 0), 0) << i << ": it was hung up on";
  expect_pictures(*open_source({.uri = "rtsp://eve:password@" + writer->where().substr(7)}), 5);
}

// GStreamer remembers something of each.
TEST(VideoServer, WhoAsksWithoutThePasswordIsHungUpOnAndForgotten) {
  const auto writer = open_video_writer(writer_options("rtsp://eve:password@127.0.0.1:0/live"));
  const std::string ask = "DESCRIBE " + writer->where() + " RTSP/1.0\r\nCSeq: 1\r\n\r\n";
  const auto pester = [&](int connections) {
    for (int n = 0; n < connections; ++n) {
      const Descriptor viewer = connected(port_of(writer->where()));
      std::string answer(4096, 0);
      int answers = -1;
      do {
        ::send(viewer.get(), ask.data(), ask.size(), MSG_NOSIGNAL);
        ++answers;
      } while (answers < 100 && ::recv(viewer.get(), answer.data(), answer.size(), 0) > 0);
      EXPECT_LT(answers, 10);
    }
    return mallinfo2().uordblks;
  };
  pester(300);
  const std::size_t before = pester(300);
  EXPECT_LT(pester(1000), before + (64 << 10));
}

TEST(VideoServer, ComesAndGoes) {
  const auto first = open_video_writer(writer_options("rtsp://127.0.0.1:0"));
  EXPECT_TRUE(first->where().ends_with("/live"));
  EXPECT_NE(refusal(first->where()), "") << "the port is taken";
  EXPECT_THROW(open_source({.uri = first->where() + "/not_here"}), SourceError);
  {
    std::jthread camera = film(*first);
    expect_pictures(*open_source({.uri = first->where()}), 5);
    expect_pictures(*open_source({.uri = first->where()}), 5);
  }
  first->finish();
  const auto second = open_video_writer(writer_options(first->where()));
  std::jthread camera = film(*second);
  expect_pictures(*open_source({.uri = second->where()}), 5);
}

TEST(SideBySide, PutsRowBesideRow) {
  Frame out;
  const Frame left = numbered(1, 4, 3), right = numbered(2, 6, 3);
  side_by_side(left, right, out);
  EXPECT_EQ(out.width, 10);
  EXPECT_EQ(out.height, 3);
  EXPECT_EQ(out.pts, left.pts);
  for (int y = 0; y < 3; ++y) {
    for (int i = 0; i < 12; ++i) EXPECT_EQ(out.pixels[y * 30 + i], left.pixels[y * 12 + i]);
    for (int i = 0; i < 18; ++i) EXPECT_EQ(out.pixels[y * 30 + 12 + i], right.pixels[y * 18 + i]);
  }
  EXPECT_THROW(side_by_side(numbered(0, 4, 3), numbered(0, 4, 4), out), std::invalid_argument);
}

}  // namespace
}  // namespace millrace::io
