#include "tools/app/rate_watch.h"

#include <gtest/gtest.h>

#include "io/queue/reader.h"

namespace millrace::app {
namespace {

using std::chrono::milliseconds;

/// Half a second at 25 frames a second, without a declared rate.
class Rateless : public io::Source {
 public:
  io::SourceInfo info() const override { return {}; }
  io::ReadStatus read(io::Frame& out, milliseconds) override {
    if (next_ == 12) return io::ReadStatus::end;
    out.pts = next_++ * milliseconds(40);
    return io::ReadStatus::frame;
  }
  bool rewind() override { return false; }

 private:
  int next_ = 0;
};

TEST(RateWatch, TheEstimateIsToldOnceWhereNobodyHasSetARate) {
  io::FrameQueue queue{64, io::Drop::never};
  io::Reader reader{std::make_unique<Rateless>(), queue, {}};
  reader.join();
  engine::Monitor monitor({1, 1}, 10);
  RateWatch rate(monitor);
  EXPECT_EQ(rate.look(reader.fps()), "");
  EXPECT_EQ(monitor.fps(), 10);
  EXPECT_FALSE(rate.estimated());
  monitor.set_fps(0);  // the config takes it back
  EXPECT_NE(rate.look(reader.fps()).find("F = 25"), std::string::npos);
  EXPECT_TRUE(rate.estimated());
  EXPECT_NEAR(monitor.read().budget, 40, 1e-6);
  EXPECT_EQ(rate.look(reader.fps()), "");
}

}  // namespace
}  // namespace millrace::app
