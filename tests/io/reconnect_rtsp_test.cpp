// A real RTSP server, killed, frozen and restarted while a reader reads it.
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gio/gio.h>
#include <gtest/gtest.h>

#include "io/queue/reader.h"
#include "io/source/source.h"
#include "tests/io/reading.h"
#include "tests/io/test_folder.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds, std::chrono::nanoseconds, std::chrono::seconds;

// On an idle machine, breaks are noticed within 3 s, and frames come 2 s and a key-frame interval
// after the server is back. Failures take a time-out of 20 s, or for ever.
constexpr milliseconds kNoticed(10000);
constexpr milliseconds kBack(10000);
constexpr milliseconds kKeyFrames(1000);

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

/// A reader and a consumer of its frames. Times are taken where a frame leaves the queue.
class Learner {
 public:
  explicit Learner(const std::string& uri)
      : source_(open_source({.uri = uri})),
        health(source_->health()),
        queue(1, Drop::newest),
        reader(std::move(source_), queue, {}) {}

  /// Takes frames until `enough`, at most for `limit`; how long that took.
  milliseconds take_until(const std::function<bool()>& enough, milliseconds limit) {
    const Clock::time_point start = Clock::now();
    while (!enough() && Clock::now() - start < limit) {
      Frame* const frame = queue.pop(milliseconds(5));
      if (!frame) continue;
      ++trained;
      monotonic = monotonic && frame->pts > last_pts;
      last_pts = frame->pts;
      queue.release(frame);
    }
    return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  }
  void take_frames(int count) {
    const std::int64_t wanted = trained + count;
    take_until([&] { return trained >= wanted; }, seconds(60));
    EXPECT_GE(trained, wanted);
  }
  milliseconds until_noticed() {
    return take_until([&] { return !health->connected; }, seconds(30));
  }
  milliseconds until_trained(std::int64_t reconnects) {
    milliseconds took = take_until([&] { return health->reconnects >= reconnects; }, seconds(60));
    const std::int64_t before = trained;
    return took + take_until([&] { return trained > before; }, seconds(60));
  }

 private:
  std::unique_ptr<Source> source_;

 public:
  std::shared_ptr<const StreamHealth> health;
  FrameQueue queue;
  Reader reader;
  std::int64_t trained = 0;
  nanoseconds last_pts{-1};
  bool monotonic = true;
};

void expect_exact(Learner& learner) {
  learner.reader.stop();
  learner.reader.join();
  learner.take_until([&] { return learner.queue.drained(); }, seconds(60));
  const FrameCounts counts = learner.queue.counts();
  EXPECT_EQ(counts.received, learner.trained + counts.dropped + counts.rejected);
  EXPECT_EQ(learner.reader.error(), "");
  EXPECT_TRUE(learner.monotonic);
}

struct Way {
  std::string transport;
  std::string path;
  milliseconds key_frames;  ///< between them
};

void PrintTo(const Way& way, std::ostream* out) {
  *out << way.transport << way.path;
}

class Rtsp : public testing::TestWithParam<Way> {};

TEST_P(Rtsp, AKilledServerIsComeBackTo) {
  RtspProcess server({GetParam().transport});
  Learner learner(server.uri(GetParam().path));
  learner.take_frames(25);
  server.kill();
  EXPECT_LE(learner.until_noticed(), kNoticed);
  EXPECT_NE(learner.health->last_error(), "");
  learner.take_until([] { return false; }, milliseconds(2200));  // the backoff grows meanwhile
  server.restart({GetParam().transport});
  EXPECT_LE(learner.until_trained(1), kBack + GetParam().key_frames);
  learner.take_frames(10);
  EXPECT_EQ(learner.health->reconnects, 1);
  EXPECT_GE(learner.health->lost_upstream, 25 * 2) << "more than 2 s of 25 frames each";
  EXPECT_GE(learner.health->frames_since, 10);
  expect_exact(learner);
}

TEST_P(Rtsp, AFrozenServerIsComeBackTo) {
  RtspProcess server({GetParam().transport});
  Learner learner(server.uri(GetParam().path));
  learner.take_frames(25);
  server.freeze();
  EXPECT_LE(learner.until_noticed(), kNoticed);
  EXPECT_EQ(learner.health->last_error(), "no picture for 2.5 s");
  learner.take_until([] { return false; }, milliseconds(1500));
  server.thaw();
  EXPECT_LE(learner.until_trained(1), kBack + GetParam().key_frames);
  learner.take_frames(10);
  expect_exact(learner);
}

INSTANTIATE_TEST_SUITE_P(, Rtsp,
                         testing::Values(Way{"tcp", "/ball", milliseconds(0)},
                                         Way{"udp", "/keys", kKeyFrames}),
                         [](const auto& way) { return way.param.transport; });

TEST(RtspChanges, StoppingIsPromptWhileTheServerIsFrozen) {
  RtspProcess server({"tcp"});
  Learner learner(server.uri("/ball"));
  learner.take_frames(5);
  server.freeze();
  learner.take_until([&] { return learner.health->attempts > 0; }, seconds(60));
  learner.take_until([] { return false; }, milliseconds(300));  // in the midst of an attempt
  const Clock::time_point before = Clock::now();
  learner.reader.stop();
  learner.reader.join();
  EXPECT_LE(Clock::now() - before, seconds(10)) << "an attempt may take 20 s";
}

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
