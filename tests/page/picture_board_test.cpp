#include "tools/page/picture_board.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include <gtest/gtest.h>

namespace millrace::page {
namespace {

const PictureShape kShape{.channels = 3, .height = 4, .width = 5};

TEST(PictureBoard, NothingIsTakenThatNobodyAskedFor) {
  EXPECT_THROW(PictureBoard({.channels = 2, .height = 4, .width = 4}, kShape),
               std::invalid_argument);
  EXPECT_THROW(PictureBoard(kShape, {.channels = 1, .height = 0, .width = 4}),
               std::invalid_argument);
  PictureBoard board(kShape, kShape);
  EXPECT_EQ(board.room(), nullptr);
  EXPECT_EQ(board.take(), nullptr);
  board.ask();
  Pictures* const room = board.room();
  ASSERT_NE(room, nullptr);
  EXPECT_EQ(room->input.size(), 60u);
  EXPECT_EQ(board.take(), nullptr);
  board.show(7);
  EXPECT_EQ(board.room(), nullptr) << "until somebody asks again";
  board.ask();
  EXPECT_EQ(board.room(), nullptr) << "not while it is being looked at";
  ASSERT_NE(board.take(), nullptr);
  EXPECT_EQ(board.take()->sample, 7);
  board.give_back();
  EXPECT_EQ(board.take(), nullptr);
  board.ask();
  EXPECT_NE(board.room(), nullptr);
}

TEST(PictureBoard, PicturesOfOneSampleStayTogether) {
  PictureBoard board(kShape, kShape);
  std::atomic<bool> stop{false};
  std::thread training([&] {
    for (std::int64_t sample = 0; !stop; ++sample) {
      if (Pictures* const room = board.room()) {
        for (auto* picture : {&room->input, &room->target, &room->prediction})
          std::fill(picture->begin(), picture->end(), float(sample));
        board.show(sample);
      } else {
        std::this_thread::yield();
      }
    }
  });
  for (int seen = 0; seen < 300;) {
    board.ask();
    const Pictures* const shown = board.take();
    if (!shown) {
      std::this_thread::yield();
      continue;
    }
    ++seen;
    const auto sample = float(shown->sample);
    for (const auto* picture : {&shown->input, &shown->target, &shown->prediction})
      for (const float value : *picture) ASSERT_EQ(value, sample);
    board.give_back();
  }
  stop = true;
  training.join();
}

}  // namespace
}  // namespace millrace::page
