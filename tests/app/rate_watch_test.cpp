// A camera that names no rate still gets a verdict.
#include "tools/app/rate_watch.h"

#include <gtest/gtest.h>

#include "engine/monitor/overload.h"
#include "io/queue/reader.h"

namespace millrace::app {
namespace {

using std::chrono::milliseconds;

/// Frames `period` apart that name no rate.
class Rateless : public io::Source {
 public:
  Rateless(milliseconds period, int count) : period_(period), count_(count) {}
  io::SourceInfo info() const override { return {}; }
  io::ReadStatus read(io::Frame& out, milliseconds) override {
    if (next_ == count_) return io::ReadStatus::end;
    out.pts = next_++ * std::chrono::nanoseconds(period_);
    return io::ReadStatus::frame;
  }
  bool rewind() override { return false; }

 private:
  const milliseconds period_;
  const int count_;
  int next_ = 0;
};

struct Watched {
  io::FrameQueue queue{64, io::Drop::never};
  io::Reader reader;
  explicit Watched(int frames = 40)
      : reader(std::make_unique<Rateless>(milliseconds(40), frames), queue, {}) {
    reader.join();
  }
  std::function<double()> seen() const {
    return [this] { return reader.fps(); };
  }
};

/// Seconds of the stream until its rate is known.
double seconds_until_known() {
  for (int frames = 1;; ++frames) {
    Watched watched(frames);
    engine::Monitor monitor({1, 1}, 0);
    if (!RateWatch(watched.seen(), monitor).look().empty()) return frames * 0.04;
  }
}

/// Seconds until a pipeline that takes `took_ms` a frame is answered, looked at 20 times a second.
double seconds_until_answered(engine::Policy policy, double took_ms) {
  engine::OverloadOptions options{.policy = policy};
  engine::Overload overload(options);
  double began = 0;
  for (double now = 0.05;; now += 0.05) {
    const auto frames = std::int64_t((now - began) * 1e3 / took_ms);
    if (!overload.enough(frames, now - began)) continue;
    began = now;
    const engine::Change change =
        overload.judge({.stage = {took_ms, took_ms}, .frame = took_ms, .budget = 40});
    if (change.kind != engine::Change::Kind::none) return now;
  }
}

TEST(RateWatch, TellsTheEstimateOnceAndTheMonitorJudgesByIt) {
  Watched watched;
  engine::Monitor monitor({1, 1}, 0);
  RateWatch rate(watched.seen(), monitor);
  EXPECT_FALSE(rate.estimated());
  EXPECT_NE(rate.look().find("25 frames a second"), std::string::npos);
  EXPECT_TRUE(rate.estimated());
  EXPECT_NEAR(monitor.read().budget, 40, 1e-6);
  EXPECT_EQ(rate.look(), "");
}

TEST(RateWatch, APolicyAnswersWithinThreeSecondsThoughTheStreamNamesNoRate) {
  const double known = seconds_until_known();
  EXPECT_LE(known, 0.5);
  for (const engine::Policy policy : {engine::Policy::drop, engine::Policy::skip}) {
    for (const double took_ms : {44.0, 60.0, 85.0, 100.0})
      EXPECT_LE(known + seconds_until_answered(policy, took_ms), 3) << took_ms;
  }
}

TEST(RateWatch, ARateThatSomebodyHasSetStays) {
  Watched watched;
  engine::Monitor monitor({1, 1}, 10);
  RateWatch rate(watched.seen(), monitor);
  EXPECT_EQ(rate.look(), "");
  EXPECT_EQ(monitor.fps(), 10);
  EXPECT_FALSE(rate.estimated());
  monitor.set_fps(0);  // the config takes it back
  EXPECT_NE(rate.look(), "");
  EXPECT_TRUE(rate.estimated());
}

}  // namespace
}  // namespace millrace::app
