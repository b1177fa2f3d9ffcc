#include "io/queue/frame_queue.h"

#include <thread>

#include <gtest/gtest.h>

#include "tests/repetitions.h"

namespace millrace::io {
namespace {

using std::chrono::milliseconds, std::chrono::seconds;

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

}  // namespace
}  // namespace millrace::io
