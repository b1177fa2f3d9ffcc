// A camera that names no rate still gets a verdict.
#include "tools/run/rate_watch.h"

#include <gtest/gtest.h>

namespace millrace::tools {
namespace {

using std::chrono::milliseconds;

/// Frames `period` apart that name no rate.
class Rateless : public io::Source {
 public:
  explicit Rateless(milliseconds period) : period_(period) {}
  io::SourceInfo info() const override { return {}; }
  io::ReadStatus read(io::Frame& out, milliseconds) override {
    if (next_ == 40) return io::ReadStatus::end;
    out.pts = next_++ * std::chrono::nanoseconds(period_);
    return io::ReadStatus::frame;
  }
  bool rewind() override { return false; }

 private:
  const milliseconds period_;
  int next_ = 0;
};

struct Watched {
  io::FrameQueue queue{64, io::Drop::never};
  io::Reader reader{std::make_unique<Rateless>(milliseconds(40)), queue, {}};
  Watched() { reader.join(); }
};

TEST(RateWatch, TellsTheEstimateOnceAndTheMonitorJudgesByIt) {
  Watched watched;
  engine::Monitor monitor({1, 1}, 0);
  RateWatch rate(watched.reader, monitor);
  EXPECT_FALSE(rate.estimated());
  EXPECT_NE(rate.look().find("25 frames a second"), std::string::npos);
  EXPECT_TRUE(rate.estimated());
  EXPECT_NEAR(monitor.read().budget, 40, 1e-6);
  EXPECT_EQ(rate.look(), "");
}

TEST(RateWatch, ARateThatSomebodyHasSetStays) {
  Watched watched;
  engine::Monitor monitor({1, 1}, 10);
  RateWatch rate(watched.reader, monitor);
  EXPECT_EQ(rate.look(), "");
  EXPECT_EQ(monitor.fps(), 10);
  EXPECT_FALSE(rate.estimated());
  monitor.set_fps(0);  // the config takes it back
  EXPECT_NE(rate.look(), "");
  EXPECT_TRUE(rate.estimated());
}

}  // namespace
}  // namespace millrace::tools
