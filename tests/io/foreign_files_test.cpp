// Files as FFmpeg and others write them, among them some that GStreamer crashes on, never ends or
// shows in wrong colours.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <sys/socket.h>

#include <opencv2/core.hpp>

#include "io/source/source.h"
#include "tests/io/loopback.h"
#include "tests/io/reading.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using ForeignFiles = FolderTest;
using Bytes = std::vector<std::uint8_t>;

// Ten moving pictures of 160x96; `coding`: FFmpeg's options.
void encode(const std::string& path, const std::string& coding,
            const std::string& size = "160x96") {
  const std::string command = "ffmpeg -v error -y -f lavfi -i testsrc2=size=" + size +
                              ":rate=25:duration=0.4 " + coding + " '" + path + "' 2>/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
}

Bytes ffmpeg_bytes(const std::string& path) {
  const std::string command = "ffmpeg -v error -i '" + path + "' -f rawvideo -pix_fmt rgb24 -";
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  Bytes all, part(1 << 16);
  while (const std::size_t got = std::fread(part.data(), 1, part.size(), pipe))
    all.insert(all.end(), part.begin(), part.begin() + std::ptrdiff_t(got));
  ::pclose(pipe);
  return all;
}

void expect_as_ffmpeg(const std::string& path) {
  const Seen seen = read_uri(path);
  EXPECT_EQ(seen.error, "") << path;
  Bytes all;
  for (const Frame& frame : seen.frames)
    all.insert(all.end(), frame.pixels.begin(), frame.pixels.end());
  const Bytes expected = ffmpeg_bytes(path);
  ASSERT_EQ(all.size(), expected.size()) << path;
  const auto colour = [](const Bytes& of) { return cv::mean(cv::Mat(of).reshape(3)); };
  EXPECT_LE(cv::norm(colour(all), colour(expected), cv::NORM_INF), 2) << path;
}

TEST_F(ForeignFiles, HaveTheColoursOfFfmpeg) {
  const std::pair<std::string, std::string> kinds[] = {
      {"nameless.mkv", "-c:v ffv1 -pix_fmt gray10le"},  // GStreamer has no name for it
      {"nameless.mp4", "-c:v libx265 -pix_fmt gray12le"},
      {"palette.avi", "-c:v rawvideo -pix_fmt pal8"},
      {"grey.mp4", "-c:v libx265 -pix_fmt gray"},
      {"grey.mkv", "-c:v ffv1 -pix_fmt gray16le"},
      {"deep.mkv", "-c:v png -pix_fmt rgb48be"},
      {"rgb.mkv", "-c:v magicyuv -pix_fmt gbrp"},  // GStreamer has no decoder
      {"video.mov", "-c:v prores_ks"},
      {"deep_gbr.mkv", "-c:v ffv1 -pix_fmt gbrp16le"},
      {"odd.mkv", "-c:v mjpeg -pix_fmt yuvj444p"},
      {"a.nut", ""},
      {"a.asf", ""},
  };
  for (const auto& [name, coding] : kinds) {
    encode(folder / name, coding);
    expect_as_ffmpeg(folder / name);
  }
  encode(folder / "large.mp4", "-c:v libx264 -pix_fmt yuv420p", "1280x720");  // names no matrix
  expect_as_ffmpeg(folder / "large.mp4");
}

TEST_F(ForeignFiles, AnAnimationHasAllItsPicturesAndEnds) {
  encode(folder / "a.gif", "-loop 0");
  encode(folder / "a.png", "-plays 0 -f apng");
  for (const char* const name : {"a.gif", "a.png"})
    EXPECT_EQ(read_uri(folder / name).frames.size(), 10u) << name;
}

// The matrix in the track's header: a phone stores what its sensor sees, and how to turn it.
void orient(const std::string& path, const std::array<int, 4>& quarter) {
  std::string bytes = bytes_of(path);
  const std::size_t at = bytes.find("tkhd") + 44;
  constexpr int kPlaces[] = {0, 1, 3, 4};
  for (int n = 0; n < 4; ++n) {
    bytes[at + 4 * kPlaces[n] + 0] = bytes[at + 4 * kPlaces[n] + 1] =
        quarter[n] < 0 ? '\xff' : '\0';
    if (quarter[n] > 0) bytes[at + 4 * kPlaces[n] + 1] = '\1';
  }
  put_bytes(path, bytes);
}

TEST_F(ForeignFiles, AreTurnedInAllEightWays) {
  constexpr std::array<int, 4> kQuarters[] = {{1, 0, 0, 1},   {-1, 0, 0, 1}, {-1, 0, 0, -1},
                                              {1, 0, 0, -1},  {0, 1, 1, 0},  {0, 1, -1, 0},
                                              {0, -1, -1, 0}, {0, -1, 1, 0}};
  for (const char* const coding :
       {"-c:v libx264 -pix_fmt yuv444p", "-c:v magicyuv -pix_fmt gbrp"}) {
    encode(folder / "a.mov", coding);
    for (const std::array<int, 4>& quarter : kQuarters) {
      orient(folder / "a.mov", quarter);
      const Seen seen = read_uri(folder / "a.mov");
      ASSERT_EQ(seen.frames.size(), 10u) << coding << seen.error;
      EXPECT_EQ(seen.frames[0].width, quarter[0] ? 160 : 96);
      Bytes expected = ffmpeg_bytes(folder / "a.mov");
      expected.resize(seen.frames[0].bytes());  // the first picture
      EXPECT_LT(cv::norm(seen.frames[0].pixels, expected, cv::NORM_L1) / double(expected.size()), 3)
          << coding << " " << quarter[1];
    }
  }
}

TEST_F(ForeignFiles, NoneIsDecodedBeforeItsSizeIsKnown) {
  encode(folder / "nameless.mkv", "-c:v ffv1 -pix_fmt gray10le");
  encode(folder / "magic.mkv", "-c:v magicyuv -pix_fmt gbrp");
  encode(folder / "a.gif", "");
  for (const char* const name : {"nameless.mkv", "magic.mkv", "a.gif"}) {
    SourceOptions options{.uri = folder / name, .max_pixels = 100};
    EXPECT_NE(open_error(options), "") << name;
    options.max_pixels = 160 * 96;
    EXPECT_EQ(open_error(options), "") << name;
  }
  put_bytes(folder / "a.svg",
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"30000\" height=\"30000\"/>");
  EXPECT_NE(open_error(folder / "a.svg"), "");
}

TEST_F(ForeignFiles, MayChangeTheirCodec) {
  encode(folder / "a.ts", "-c:v libx264");
  encode(folder / "b.ts", "-c:v mpeg2video");
  put_bytes(folder / "ab.ts", bytes_of(folder / "a.ts") + bytes_of(folder / "b.ts"));
  const Seen seen = read_uri(folder / "ab.ts");
  EXPECT_EQ(seen.error, "");
  EXPECT_EQ(seen.frames.size(), 20u);
}

TEST_F(ForeignFiles, AnImplausibleRateIsUnknown) {
  encode(folder / "a.h264", "-c:v libx264");
  const std::string command = "ffmpeg -v error -i " + folder / "a.h264" +
                              " -c copy -bsf:v h264_metadata=tick_rate=1/1073741823 " +
                              folder / "b.h264 2>/dev/null";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const auto source = open_source({.uri = folder / "b.h264"});
  EXPECT_EQ(source->info().fps, 0);
  EXPECT_EQ(read_all(*source).frames.size(), 10u);
}

TEST_F(ForeignFiles, ARecordingThatStallsEnds) {
  encode(folder / "a.avi", "-c:v mjpeg -pix_fmt yuvj420p");
  const std::string bytes = bytes_of(folder / "a.avi");
  Port port;
  ASSERT_TRUE(port.listen());
  std::thread server([&] {
    const Descriptor viewer(::accept4(port.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::string answer =
        "HTTP/1.1 200 OK\r\nContent-Type: video/x-msvideo\r\nContent-Length: " +
        std::to_string(bytes.size()) + "\r\n\r\n" + bytes.substr(0, bytes.size() / 2);
    ::send(viewer.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    char request[4096];
    while (::recv(viewer.get(), request, sizeof request, 0) > 0) {
    }
  });
  {
    SourceOptions options{.uri = "http://127.0.0.1:" + std::to_string(port.number) + "/a.avi"};
    options.reconnect.open_limit = std::chrono::seconds(3);
    const auto source = open_source(options);
    const Seen seen = read_all(*source);
    EXPECT_GT(seen.frames.size(), 0u);
    EXPECT_NE(seen.error.find("hangs"), std::string::npos) << seen.error;
  }
  server.join();
}

}  // namespace
}  // namespace millrace::io
