#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "io/queue/frame_queue.h"
#include "io/queue/planar.h"
#include "io/queue/reader.h"
#include "tests/io/scripted_source.h"
#include "tests/repetitions.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds, std::chrono::nanoseconds, std::chrono::seconds;

void push_number(FrameQueue& queue, int number) {
  queue.writable().width = number;
  queue.push();
}

TEST(FrameQueue, NewestKeepsExactlyTheNewest) {
  for (const int capacity : {1, 3, 100}) {
    FrameQueue queue(capacity, Drop::newest);
    for (int n = 0; n < capacity + 50; ++n) push_number(queue, n);
    EXPECT_EQ(queue.dropped(), 50);
    EXPECT_EQ(queue.counts().waiting(), capacity);
    for (int n = 50; n < capacity + 50; ++n) {
      Frame* const frame = queue.pop(milliseconds(0));
      ASSERT_NE(frame, nullptr);
      EXPECT_EQ(frame->id, n) << "dropped frames use up their number";
      EXPECT_EQ(frame->width, n);
      queue.release(frame);
    }
    EXPECT_EQ(queue.pop(milliseconds(0)), nullptr);
  }
}

TEST(FrameQueue, AHeldFrameIsNotWrittenOver) {
  FrameQueue queue(1, Drop::newest);
  push_number(queue, 7);
  Frame* const held = queue.pop(milliseconds(0));
  ASSERT_NE(held, nullptr);
  for (int n = 0; n < 100; ++n) push_number(queue, 1000 + n);
  EXPECT_EQ(held->width, 7);
  EXPECT_EQ(held->id, 0);
  EXPECT_THROW(queue.pop(milliseconds(0)), std::logic_error);
  queue.release(held);
  EXPECT_EQ(queue.pop(milliseconds(0))->width, 1099);
}

TEST(FrameQueue, CloseEndsAWaitAndLetsTheWaitingOut) {
  FrameQueue waited(4, Drop::never), queue(4, Drop::never);
  std::thread closer([&] {
    std::this_thread::sleep_for(milliseconds(20));
    waited.close();
  });
  EXPECT_EQ(waited.pop(seconds(60)), nullptr);
  EXPECT_TRUE(waited.drained());
  closer.join();
  push_number(queue, 1);
  queue.close();
  EXPECT_FALSE(queue.drained());
  queue.release(queue.pop(seconds(60)));
  EXPECT_TRUE(queue.drained());
  EXPECT_EQ(queue.pop(seconds(60)), nullptr) << "and nobody waits for what can't come";
  EXPECT_FALSE(queue.push());
  EXPECT_EQ(queue.dropped(), 1);
}

TEST(FrameQueue, StopCountsWhatWaitsAndWhatStillComes) {
  FrameQueue queue(4, Drop::never);
  for (int n = 0; n < 3; ++n) push_number(queue, n);
  queue.release(queue.pop(milliseconds(0)));
  queue.stop();
  EXPECT_EQ(queue.pop(seconds(60)), nullptr);
  EXPECT_EQ(queue.dropped(), 2);
  EXPECT_FALSE(queue.push());
  EXPECT_FALSE(queue.push());
  EXPECT_EQ(queue.received(), 5);
  EXPECT_EQ(queue.dropped(), 4);
  EXPECT_EQ(queue.counts().popped, 1);
  EXPECT_EQ(queue.counts().waiting(), 0);
}

TEST(FrameQueue, NeverBlocksTheProducerAndStopWakesIt) {
  FrameQueue queue(2, Drop::never);
  std::atomic<bool> refused{false};
  std::thread producer([&] {
    while (queue.push()) {
    }
    refused = true;
  });
  // Two wait, one is where the consumer could hold one, and the fourth push finds no room to go on.
  while (queue.received() < 4) std::this_thread::yield();
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(queue.received(), 4);
  EXPECT_EQ(queue.dropped(), 0);
  EXPECT_FALSE(refused);
  queue.stop();
  producer.join();
  EXPECT_TRUE(refused);
  EXPECT_EQ(queue.received(), queue.dropped());
}

// One producer and one consumer at full speed, an onlooker who takes account all the while.
struct Storm {
  explicit Storm(Drop drop) : queue(3, drop), drop(drop) {}

  void run(int frames, bool slow_consumer, int stop_after) {
    std::atomic<bool> done{false};
    std::thread onlooker([&] {
      while (!done) look();
    });
    std::thread producer([&] {
      for (int n = 0; n < frames; ++n) {
        if (n % 17 == 5) queue.reject();
        queue.writable().width = n;
        if (!queue.push()) break;
      }
      queue.close();
    });
    consume(slow_consumer, stop_after);
    producer.join();
    done = true;
    onlooker.join();
    look();
  }

  void consume(bool slow, int stop_after) {
    std::int64_t last = -1;
    while (!queue.drained()) {
      Frame* const frame = queue.pop(milliseconds(50));
      if (!frame) continue;
      if (frame->id <= last || frame->id != frame->width) ++disorder;
      last = frame->id;
      ++taken;
      if (slow && taken % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      queue.release(frame);
      if (stop_after > 0 && taken == stop_after) queue.stop();
    }
  }

  void look() {
    const FrameCounts counts = queue.counts();
    // One more may just have been pushed and not yet made up for.
    const std::int64_t most = 3 + 1 + (drop == Drop::never ? 1 : 0);
    if (counts.waiting() < 0 || counts.waiting() > most) ++misfits;
  }

  FrameQueue queue;
  Drop drop;
  std::int64_t taken = 0;
  std::int64_t disorder = 0;
  std::atomic<int> misfits{0};
};

void expect_settled(const Storm& storm) {
  EXPECT_EQ(storm.misfits, 0);
  EXPECT_EQ(storm.disorder, 0);
  const FrameCounts counts = storm.queue.counts();
  EXPECT_EQ(counts.waiting(), 0);
  EXPECT_EQ(counts.popped, storm.taken);
  EXPECT_EQ(counts.received, storm.queue.received());
}

TEST(FrameQueue, AccountHoldsUnderEitherPolicy) {
  constexpr int frames = 30000, rejected = (frames - 6) / 17 + 1;
  for (const Drop drop : {Drop::newest, Drop::never}) {
    Storm storm(drop);
    storm.run(frames, /*slow_consumer=*/drop == Drop::newest, 0);
    expect_settled(storm);
    EXPECT_EQ(storm.queue.received(), frames + rejected);
    EXPECT_EQ(storm.queue.rejected(), rejected);
    EXPECT_EQ(storm.queue.dropped() > 0, drop == Drop::newest);
    EXPECT_EQ(storm.taken, frames - storm.queue.dropped());
  }
}

TEST(FrameQueue, AccountHoldsOverAStop) {
  for (const Drop drop : {Drop::newest, Drop::never}) {
    for (int round = 0; round < repetitions(200); ++round) {
      Storm storm(drop);
      storm.run(1000000, false, 1 + round % 13);
      expect_settled(storm);
      EXPECT_EQ(storm.taken, 1 + round % 13);
    }
  }
}

Frame picture(int width, int height, int channels) {
  Frame frame{.width = width, .height = height, .channels = channels, .pixels = {}};
  frame.pixels.resize(frame.bytes());
  // Every value in every channel, and no two neighbours alike.
  for (std::size_t i = 0; i < frame.bytes(); ++i) frame.pixels[i] = std::uint8_t(i * 37 + i / 256);
  return frame;
}

// To the bit, whatever the size.
TEST(Planar, IsEachByteOver255InItsPlaneAndComesBackTheSame) {
  // Below, at and beyond the blocks that vectors take; sizes of no round number.
  for (const int channels : {1, 3}) {
    for (const auto& [width, height] :
         {std::pair(1, 1), {63, 1}, {64, 1}, {65, 1}, {13, 7}, {64, 48}, {101, 67}}) {
      const Frame frame = picture(width, height, channels);
      const std::size_t plane = std::size_t(width) * height;
      std::vector<float> out(frame.bytes() + 1, -1.0f);
      to_planar(frame, out.data());
      for (std::size_t i = 0; i < frame.bytes(); ++i) {
        const std::size_t pixel = i / channels, channel = i % channels;
        ASSERT_EQ(out[channel * plane + pixel], float(frame.pixels[i]) / 255.0f)
            << width << "x" << height << "x" << channels << " at " << i;
      }
      EXPECT_EQ(out.back(), -1.0f) << "nothing is written beyond";
      EXPECT_EQ(from_planar(out.data(), channels, height, width).pixels, frame.pixels);
    }
  }
}

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

TEST(Reader, ShowsEachGoodFrameOnTheWay) {
  std::vector<int> widths;
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
  FrameQueue queue(300, Drop::never);
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
  EXPECT_EQ(rate_of({.pts = away, .fps = 50.0, .back = 50, .fps_back = 20.0}), 20.0)
      << "a new word";
  EXPECT_NEAR(rate_of({.pts = every(milliseconds(20), 300), .fps = 30.0}), 50.0, 0.01)
      << "a word that isn't kept";
  EXPECT_EQ(rate_of({.pts = every(milliseconds(20), 300), .fps = 45.0}), 45.0) << "nearly kept";
}

}  // namespace
}  // namespace millrace::io
