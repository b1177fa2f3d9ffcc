// The queues to and from a run, with all threads of the element active at once.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tools/bindings/gst/queues.h"

namespace millrace::gst {
namespace {

using namespace std::chrono_literals;

constexpr int kFrames = 3000;

TEST(Mailbox, EveryFrameIsTakenOrCountedAsLostWhoeverFlushes) {
  Mailbox mailbox;
  std::atomic<bool> sending{true};
  std::int64_t taken = 0;
  std::thread sender([&] {
    for (int i = 0; i < kFrames; ++i) {
      io::Frame frame;
      frame.pixels.assign(16, std::uint8_t(i));
      mailbox.put(frame, {.position = i}, false, i % 2 == 0);
    }
    sending = false;
    mailbox.end();
  });
  std::thread flusher([&] {
    while (sending) {
      mailbox.flush(true);
      mailbox.flush(false);
      std::this_thread::sleep_for(1ms);
    }
  });
  std::atomic<std::int64_t> known{0};
  std::thread watcher([&] {
    while (sending) {
      const std::int64_t id = known - 1;
      const auto stamp = mailbox.stamp_of(id);
      if (stamp && stamp->position < id) ADD_FAILURE() << "an older frame's stamp";
      mailbox.forget_before(id);
    }
  });
  io::Frame frame;
  std::int64_t before = -1;
  for (io::ReadStatus status; (status = mailbox.take(frame, 1s)) != io::ReadStatus::end;) {
    if (status != io::ReadStatus::frame) continue;
    const auto stamp = mailbox.stamp_of(taken);
    ASSERT_TRUE(stamp);
    EXPECT_GT(stamp->position, before) << "out of order";
    EXPECT_EQ(frame.pixels[15], std::uint8_t(stamp->position)) << "another frame's stamp";
    before = stamp->position;
    known = ++taken;
  }
  sender.join();
  flusher.join();
  watcher.join();
  EXPECT_EQ(taken + mailbox.lost(), kFrames);
}

TEST(Outlet, PicturesAndEventsLeaveInTheStreamsOrder) {
  Outlet outlet(4);
  outlet.flush(false, 0);
  std::thread pad([&] {
    for (int i = 0; i < kFrames; i += 10)
      outlet.put(gst_event_new_gap(GstClockTime(i), GST_CLOCK_TIME_NONE), i);
  });
  pad.join();
  std::thread late([&] {
    outlet.put(gst_event_new_gap(GstClockTime(kFrames), GST_CLOCK_TIME_NONE), kFrames);
    (void)outlet.dropped();
  });
  std::thread worker([&] {
    std::vector<float> numbers(8);
    for (int i = 0; i < kFrames; ++i) {
      numbers.assign(8, float(i));
      outlet.put({.frame = i, .input = numbers, .prediction = numbers}, {.position = i}, true);
    }
    late.join();
    outlet.end();
  });
  Shown picture;
  GstEvent* event = nullptr;
  std::int64_t pictures = 0, events = 0;
  for (Outlet::Next next; (next = outlet.next(picture, event)) != Outlet::Next::end;) {
    if (next == Outlet::Next::event) {
      GstClockTime due;
      gst_event_parse_gap(event, &due, nullptr);
      gst_event_unref(event);
      EXPECT_EQ(std::int64_t(due), 10 * events++) << "its event is out of order";
      EXPECT_LE(pictures, std::int64_t(due));
    } else {
      EXPECT_EQ(picture.frame, pictures++);
      EXPECT_EQ(picture.prediction[7], float(picture.frame)) << "another picture's numbers";
    }
  }
  worker.join();
  EXPECT_EQ(pictures, kFrames);
  EXPECT_EQ(events, kFrames / 10 + 1);
}

}  // namespace
}  // namespace millrace::gst

int main(int argc, char** argv) {
  gst_init(&argc, &argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
