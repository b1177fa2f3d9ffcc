// A real RTSP server, killed, frozen and restarted while a reader reads it.
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "io/queue/reader.h"
#include "io/queue/resizer.h"
#include "io/source/source.h"
#include "tests/io/rtsp_process.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

// On an idle machine, breaks are noticed within 3 s, and frames come 2 s and a key-frame interval
// after the server is back. Failures take a time-out of 20 s, or for ever.
constexpr milliseconds kNoticed(10000);
constexpr milliseconds kBack(10000);
constexpr milliseconds kKeyFrames(1000);

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
      const Frame& fitted = resizer.fit(*frame);
      sized = sized && fitted.width == 64 && fitted.height == 48;
      width = frame->width;
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
  Resizer resizer{64, 48};
  std::int64_t trained = 0;
  nanoseconds last_pts{-1};
  bool monotonic = true;
  bool sized = true;
  int width = 0;
};

void expect_exact(Learner& learner) {
  learner.reader.stop();
  learner.reader.join();
  learner.take_until([&] { return learner.queue.drained(); }, seconds(60));
  const FrameCounts counts = learner.queue.counts();
  EXPECT_EQ(counts.received, learner.trained + counts.dropped + counts.rejected);
  EXPECT_EQ(learner.reader.error(), "");
  EXPECT_TRUE(learner.monotonic);
  EXPECT_TRUE(learner.sized);
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

TEST(RtspChanges, AnotherSizeIsFitted) {
  RtspProcess server;
  Learner learner(server.uri("/ball"));
  learner.take_frames(5);
  EXPECT_EQ(learner.width, 64);
  server.restart({"large"});
  learner.until_trained(1);
  learner.take_frames(5);
  EXPECT_EQ(learner.width, 96);
  expect_exact(learner);
}

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

TEST(RtspRate, IsEstimatedFromTimeStampsWhereTheCameraNamesNone) {
  RtspProcess server;
  EXPECT_EQ(open_source({.uri = server.uri("/rateless")})->info().fps, 0.0);
  EXPECT_EQ(open_source({.uri = server.uri("/ball")})->info().fps, 25.0);
  Learner learner(server.uri("/rateless"));
  learner.take_frames(20);
  EXPECT_NEAR(learner.reader.fps(), 25.0, 1.0);
}

}  // namespace
}  // namespace millrace::io
