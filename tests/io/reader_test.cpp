#include "io/queue/reader.h"

#include <atomic>
#include <mutex>

#include <gtest/gtest.h>

#include "tests/io/scripted_source.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds, std::chrono::nanoseconds, std::chrono::seconds;

struct Delivered {
  std::vector<Frame> frames;
  std::string error;
  std::int64_t received = 0, rejected = 0;
};

Delivered read_all(Script script, ReaderOptions options) {
  Delivered seen;
  FrameQueue queue(4, Drop::never);
  Reader reader(std::make_unique<ScriptedSource>(std::move(script)), queue, options);
  while (!queue.drained()) {
    if (Frame* const frame = queue.pop(seconds(1))) {
      seen.frames.push_back(*frame);
      queue.release(frame);
    }
  }
  reader.join();
  seen.error = reader.error();
  seen.received = queue.received();
  seen.rejected = queue.rejected();
  return seen;
}

TEST(Reader, ReadsToTheEnd) {
  const Clock::time_point before = Clock::now();
  const Delivered seen = read_all({every(milliseconds(10), 50)}, {});
  ASSERT_EQ(seen.frames.size(), 50u);
  for (int n = 0; n < 50; ++n) {
    EXPECT_EQ(seen.frames[n].id, n);
    EXPECT_EQ(seen.frames[n].pts, milliseconds(10 * n));
    EXPECT_GE(seen.frames[n].captured, before);
    EXPECT_LE(seen.frames[n].captured, Clock::now());
  }
  EXPECT_EQ(seen.error, "");
  std::vector<int> widths;  // of each good frame, shown on the way
  const auto show = [&](const Frame& frame) { widths.push_back(frame.width); };
  read_all({.pts = every(milliseconds(1), 4), .corrupt = {1}}, {.seen = show});
  EXPECT_EQ(widths, (std::vector<int>{0, 2, 3}));
}

TEST(Reader, PacedFramesFallDueAtTheirTime) {
  // A stream need not start at 0.
  const std::vector<nanoseconds> pts = every(milliseconds(15), 8, seconds(5));
  const Clock::time_point before = Clock::now();
  const Delivered seen = read_all({pts}, {.paced = true});
  ASSERT_EQ(seen.frames.size(), 8u);
  EXPECT_GE(Clock::now() - before, milliseconds(7 * 15));
  EXPECT_GE(seen.frames[0].captured, before);
  for (int n = 1; n < 8; ++n) {
    EXPECT_GE(seen.frames[n].captured - seen.frames[n - 1].captured, milliseconds(15));
  }
}

TEST(Reader, LoopsWithGrowingPts) {
  // At 25 a second a pass begins 40 ms after the last frame of the one before.
  const Delivered seen =
      read_all({.pts = every(milliseconds(10), 10), .fps = 25.0}, {.loop = true, .limit = 25});
  ASSERT_EQ(seen.frames.size(), 25u);
  for (int n = 0; n < 25; ++n) {
    EXPECT_EQ(seen.frames[n].pts, milliseconds(10 * (n % 10) + n / 10 * (90 + 40)));
    EXPECT_EQ(seen.frames[n].width, n % 10);
  }
}

TEST(Reader, AJumpOfAnHourIsNotWaitedForAndMissingTimesAreMadeUpFromTheRate) {
  Script script{every(milliseconds(10), 20)};
  for (int n = 10; n < 20; ++n) script.pts[n] += seconds(3600);
  script.pts[15] = script.pts[16] = seconds(0);  // back again, and then none
  const Delivered seen = read_all(script, {.paced = true});
  ASSERT_EQ(seen.frames.size(), 20u);
  for (int n = 0; n < 20; ++n) EXPECT_EQ(seen.frames[n].pts, milliseconds(10 * n)) << n;
  const Delivered none = read_all({.pts = std::vector<nanoseconds>(4), .fps = 0.0}, {.fps = 50.0});
  ASSERT_EQ(none.frames.size(), 4u);
  for (int n = 0; n < 4; ++n) EXPECT_EQ(none.frames[n].pts, milliseconds(20 * n));
}

TEST(Reader, EndsWhereItCannotLoopAtItsLimitOfGoodFramesAndAtABreak) {
  const Script once{.pts = every(milliseconds(10), 3), .rewinds = false};
  EXPECT_EQ(read_all(once, {.loop = true}).frames.size(), 3u);
  // Nothing but rubbish must not go round for ever.
  EXPECT_EQ(
      read_all({.pts = every(milliseconds(10), 2), .corrupt = {0, 1}}, {.loop = true}).rejected, 2);
  const Delivered some =
      read_all({.pts = every(milliseconds(10), 10), .corrupt = {1, 3}}, {.limit = 6});
  EXPECT_EQ(some.frames.size(), 6u);
  EXPECT_EQ(some.received, 8);
  EXPECT_EQ(some.rejected, 2);
  const Delivered broken = read_all({every(milliseconds(10), 5), Script::breaks}, {});
  EXPECT_EQ(broken.frames.size(), 5u);
  EXPECT_EQ(broken.error, "scripted: cut");
}

TEST(Reader, StopEndsASourceThatGivesNothingAndALongSleep) {
  FrameQueue nothing(4, Drop::never), queue(4, Drop::never);
  Reader endless(std::make_unique<ScriptedSource>(Script{{}, Script::is_silent}), nothing, {});
  endless.stop();
  endless.join();
  EXPECT_TRUE(nothing.drained());
  const Script script{.pts = {seconds(0), seconds(3600)}, .fps = 1.0 / 3600.0};
  Reader reader(std::make_unique<ScriptedSource>(script), queue, {.paced = true});
  Frame* const frame = queue.pop(seconds(60));
  ASSERT_NE(frame, nullptr);
  queue.release(frame);
  reader.stop();
  reader.join();
  EXPECT_EQ(queue.received(), 1) << "a frame that never fell due was never received";
}

TEST(Reader, DestroyingItFreesOneThatWaitsForRoomAndAfterTheEndKeepsWhatWaits) {
  FrameQueue full(2, Drop::never), queue(8, Drop::never);
  const auto frames = [](int count) {
    return std::make_unique<ScriptedSource>(Script{every(milliseconds(1), count)});
  };
  {
    Reader waits(frames(1000), full, {}), ends(frames(5), queue, {});
    while (full.received() < 4) std::this_thread::yield();  // one is held at most
    ends.join();
    EXPECT_FALSE(ends.hung());
  }
  EXPECT_TRUE(full.drained());
  EXPECT_EQ(full.counts().waiting(), 0);
  EXPECT_EQ(queue.counts().waiting(), 5);
}

struct Gate : std::mutex {
  std::atomic<bool> reached = false;
};

/// Gives five frames; hangs while `gate` is locked: in read() behind them, or in its destructor.
class HangingSource : public ScriptedSource {
 public:
  enum class Where { read, destructor };
  HangingSource(std::shared_ptr<Gate> gate, Where where)
      : ScriptedSource({every(milliseconds(1), 5)}), gate_(std::move(gate)), where_(where) {}
  ~HangingSource() override {
    if (where_ == Where::destructor) pass();
  }
  ReadStatus read(Frame& out, milliseconds timeout) override {
    if (where_ == Where::read && count_++ == 5) pass();
    return ScriptedSource::read(out, timeout);
  }

 private:
  void pass() {
    gate_->reached = true;
    const std::lock_guard wait(*gate_);
  }

  const std::shared_ptr<Gate> gate_;
  const Where where_;
  int count_ = 0;
};

TEST(Reader, ASourceThatHangsWhileItIsClosedKeepsNobodyFromSaving) {
  const auto gate = std::make_shared<Gate>();
  const std::lock_guard shut(*gate);
  FrameQueue queue(8, Drop::never);
  Reader reader(std::make_unique<HangingSource>(gate, HangingSource::Where::destructor), queue,
                {.teardown = milliseconds(50)});
  reader.join();
  EXPECT_TRUE(reader.hung());
  EXPECT_EQ(queue.counts().waiting(), 5);
  reader.stop();
  queue.stop();
  EXPECT_TRUE(queue.drained());
}

TEST(Reader, APictureThatNeverComesKeepsNobodyFromSaving) {
  const auto gate = std::make_shared<Gate>();
  auto queue = std::make_unique<FrameQueue>(8, Drop::never);
  {
    const std::lock_guard shut(*gate);
    Reader reader(std::make_unique<HangingSource>(gate, HangingSource::Where::read), *queue,
                  {.teardown = milliseconds(50)});
    while (!gate->reached) std::this_thread::yield();
    reader.stop();
    reader.join();
    EXPECT_TRUE(reader.hung());
    EXPECT_EQ(queue->counts().waiting(), 5);
  }
  queue.reset();  // the thread, which now comes back, does not touch it
  while (gate.use_count() > 1) std::this_thread::yield();
}

double rate_of(Script script) {
  FrameQueue queue(100, Drop::never);
  Reader reader(std::make_unique<ScriptedSource>(std::move(script)), queue, {});
  reader.join();
  return reader.fps();
}

TEST(Reader, TellsTheRateThatStampsShowWhereTheSourceNamesNone) {
  EXPECT_NEAR(rate_of({.pts = every(milliseconds(20), 30), .fps = 0.0}), 50.0, 0.01);
  EXPECT_EQ(rate_of({.pts = every(milliseconds(20), 5), .fps = 0.0}), 0.0) << "too few to say";
  EXPECT_NEAR(rate_of({.pts = every(milliseconds(20), 30), .fps = 30.0}), 30.0, 1e-6)
      << "the source's word";
  std::vector<nanoseconds> away = every(milliseconds(20), 60);
  for (std::size_t n = 50; n < away.size(); ++n) away[n] += seconds(9);
  EXPECT_NEAR(rate_of({.pts = away, .fps = 0.0, .back = 50}), 50.0, 0.5) << "an outage is no frame";
}

}  // namespace
}  // namespace millrace::io
