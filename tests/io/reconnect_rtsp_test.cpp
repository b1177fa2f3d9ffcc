// A real RTSP server, killed, frozen and restarted while a reader reads it.
#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include <gio/gio.h>
#include <gtest/gtest.h>

#include "io/source/source.h"
#include "tests/io/reading.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;

// On an idle machine, breaks are noticed within 3 s, and frames come 2 s and a key-frame interval
// after the server is back. Failures take a time-out of 20 s, or for ever.
constexpr seconds kNoticed(10), kBack(10);

/// The tests' RTSP server as a process that can be killed, frozen and restarted. Serves from its
/// construction to its destruction. Thread-bound.
class RtspProcess {
 public:
  /// `options`: words for the server, see rtsp_server.cpp.
  explicit RtspProcess(const std::vector<std::string>& options = {}) { start(options); }
  ~RtspProcess() { kill(); }
  RtspProcess(const RtspProcess&) = delete;
  RtspProcess& operator=(const RtspProcess&) = delete;

  std::string uri(const std::string& path) const {
    return "rtsp://127.0.0.1:" + std::to_string(port_) + path;
  }

  void freeze() { g_subprocess_send_signal(process_, SIGSTOP); }
  void thaw() { g_subprocess_send_signal(process_, SIGCONT); }
  /// Without warning.
  void kill() {
    if (!process_) return;
    g_subprocess_force_exit(process_);
    g_subprocess_wait(process_, nullptr, nullptr);
    g_clear_object(&process_);
  }
  /// On the same port; returns when it listens.
  void restart(const std::vector<std::string>& options = {}) {
    kill();
    start(options);
  }

 private:
  void start(const std::vector<std::string>& options) {
    const std::string port = "port=" + std::to_string(port_);
    std::vector<const char*> words = {MILLRACE_RTSP_SERVER, port.c_str()};
    for (const std::string& option : options) words.push_back(option.c_str());
    words.push_back(nullptr);
    const auto pipes =
        GSubprocessFlags(G_SUBPROCESS_FLAGS_STDIN_PIPE | G_SUBPROCESS_FLAGS_STDOUT_PIPE);
    process_ = g_subprocess_newv(words.data(), pipes, nullptr);
    char answer[16] = "";
    GInputStream* const out = process_ ? g_subprocess_get_stdout_pipe(process_) : nullptr;
    if (!out || g_input_stream_read(out, answer, sizeof answer - 1, nullptr, nullptr) <= 0)
      throw std::runtime_error("the RTSP server did not start");
    port_ = std::atoi(answer);
  }

  int port_ = 0;  // any free one the first time
  GSubprocess* process_ = nullptr;
};

struct Way {
  std::string transport;
  std::string path;
  seconds key_frames;  ///< between them
};

class Rtsp : public testing::TestWithParam<Way> {};

TEST_P(Rtsp, AKilledServerIsComeBackTo) {
  RtspProcess server({GetParam().transport});
  const auto source = open_source({.uri = server.uri(GetParam().path)});
  const auto health = source->health();
  EXPECT_TRUE(read_until(*source, [&] { return health->frames_since >= 25; }));
  server.kill();
  EXPECT_TRUE(read_until(
      *source, [&] { return !health->connected; }, kNoticed));
  EXPECT_NE(health->last_error(), "");
  read_until(
      *source, [] { return false; }, seconds(3));  // the backoff grows meanwhile
  server.restart({GetParam().transport});
  const auto back = [&] { return health->reconnects > 0 && health->frames_since >= 10; };
  EXPECT_TRUE(read_until(*source, back, kBack + GetParam().key_frames));
  EXPECT_EQ(health->reconnects, 1);
  EXPECT_GE(health->lost_upstream, 25 * 2) << "more than 2 s of 25 frames each";
}

TEST_P(Rtsp, AFrozenServerIsComeBackToAndLeftAtOnce) {
  RtspProcess server({GetParam().transport});
  auto source = open_source({.uri = server.uri(GetParam().path)});
  const auto health = source->health();
  EXPECT_TRUE(read_until(*source, [&] { return health->frames_since >= 25; }));
  server.freeze();
  EXPECT_TRUE(read_until(
      *source, [&] { return !health->connected; }, kNoticed));
  EXPECT_EQ(health->last_error(), "no picture for 2.5 s");
  read_until(
      *source, [] { return false; }, seconds(2));
  server.thaw();
  const auto back = [&] { return health->reconnects > 0 && health->frames_since >= 10; };
  EXPECT_TRUE(read_until(*source, back, kBack + GetParam().key_frames));
  server.freeze();
  const std::int64_t before = health->attempts;
  EXPECT_TRUE(read_until(
      *source, [&] { return health->attempts > before; }, seconds(60)));
  Frame frame;
  source->read(frame, milliseconds(300));  // in the midst of an attempt
  const Clock::time_point left = Clock::now();
  source.reset();
  EXPECT_LE(Clock::now() - left, seconds(10)) << "an attempt may take 20 s";
}

INSTANTIATE_TEST_SUITE_P(, Rtsp,
                         testing::Values(Way{"tcp", "/ball", seconds(0)},
                                         Way{"udp", "/keys", seconds(1)}),
                         [](const auto& way) { return way.param.transport; });

TEST(RtspChanges, AStreamThatEndsIsOpenedAgain) {
  const TestFolder folder;
  const std::string file = folder / "a.avi";
  const std::string make =
      "ffmpeg -v error -f lavfi -i testsrc2=size=64x48:rate=25:duration=2 -c:v mjpeg -pix_fmt "
      "yuvj420p " +
      file;
  ASSERT_EQ(std::system(make.c_str()), 0);
  RtspProcess server({"tcp", "launch=filesrc location=" + file + " ! avidemux ! rtpjpegpay pt=26"});
  // A busy machine may take longer than the default silence to tell of the end.
  const auto source =
      open_source({.uri = server.uri("/other"), .reconnect = {.silence = seconds(30)}});
  EXPECT_GT(source->info().duration_s, 0);
  const auto health = source->health();
  EXPECT_TRUE(read_until(
      *source, [&] { return health->reconnects > 0; }, seconds(60)));
  EXPECT_EQ(health->last_error(), "the stream ended");
}

TEST(RtspChanges, WithoutReconnectingABreakIsTheEnd) {
  RtspProcess server({"tcp"});
  const auto source = open_source({.uri = server.uri("/ball"), .reconnect = {.enabled = false}});
  Frame frame;
  ASSERT_EQ(source->read(frame, seconds(60)), ReadStatus::frame);
  server.kill();
  ReadStatus status = ReadStatus::frame;
  const Clock::time_point limit = Clock::now() + seconds(60);
  try {
    while (status != ReadStatus::end && Clock::now() < limit) {
      status = source->read(frame, milliseconds(20));
    }
    EXPECT_EQ(status, ReadStatus::end);
  } catch (const SourceError&) {
  }
}

}  // namespace
}  // namespace millrace::io
