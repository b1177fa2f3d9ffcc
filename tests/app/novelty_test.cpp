// Unusual losses are marked, and what lasts becomes usual.
#include "tools/app/outputs/novelty.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace millrace::app {
namespace {

/// Losses about `level` that go up and down by `spread`, as a scene's do.
class Losses {
 public:
  float about(double level, double spread = 0.2) {
    return float(level * std::exp(spread * normal_(random_)));
  }

 private:
  std::mt19937 random_{7};
  std::normal_distribution<double> normal_;
};

/// A Novelty of a stream of 25 frames a second, whose frames are numbered from 1000.
class NoveltyOfAStream : public Novelty {
 public:
  using Novelty::Novelty;
  bool see(float loss) {
    const std::int64_t frame = frame_++;
    return Novelty::see({.loss = loss, .frame = 1000 + frame, .seconds = double(frame) / 25});
  }
  /// So many frames of that loss.
  void repeat(int frames, float loss) {
    for (int i = 0; i < frames; ++i) see(loss);
  }

 private:
  std::int64_t frame_ = 0;
};

/// One that has seen `frames` usual frames.
struct Settled : NoveltyOfAStream {
  explicit Settled(const NoveltyOptions& options = {}, int frames = 2000)
      : NoveltyOfAStream(options) {
    for (int i = 0; i < frames; ++i) see(losses.about(0.01));
  }
  Losses losses;
};

TEST(Novelty, AStrangeFrameIsMarkedAndTheNextOneIsNot) {
  Settled novelty;
  const std::int64_t before = novelty.marked();
  EXPECT_TRUE(novelty.see(0.1f));
  EXPECT_GT(novelty.deviation(), 8.0);
  EXPECT_TRUE(novelty.in_event());
  EXPECT_EQ(novelty.event_began(), 3000);
  EXPECT_FALSE(novelty.see(0.01f));
  EXPECT_NEAR(novelty.deviation(), 0.0, 0.5);
  EXPECT_TRUE(novelty.see(0.1f)) << "one strange frame does not make the next usual";
  EXPECT_EQ(novelty.marked(), before + 2);
}

TEST(Novelty, FramesCloseTogetherAreOneEvent) {
  Settled novelty;
  const std::int64_t before = novelty.events();
  for (int round = 0; round < 5; ++round) {
    novelty.repeat(5, 0.1f);
    novelty.repeat(10, 0.01f);
  }
  EXPECT_EQ(novelty.events(), before + 1);
  EXPECT_TRUE(novelty.in_event());
  novelty.repeat(25, 0.01f);
  EXPECT_FALSE(novelty.in_event());
  EXPECT_EQ(novelty.event_began(), 3000);
  EXPECT_GT(novelty.event_peak(), 8.0);
}

TEST(Novelty, WhatLastsBecomesUsual) {
  Settled novelty;
  int marked = 0;
  for (int i = 0; i < 1000; ++i) marked += novelty.see(novelty.losses.about(0.1)) ? 1 : 0;
  EXPECT_GT(marked, 20) << "a change is noticed for a while";
  EXPECT_LT(marked, 600);
  EXPECT_FALSE(novelty.in_event());
}

TEST(Novelty, UsualFramesAreHardlyEverMarkedThoughTheirLossFallsOrDrifts) {
  struct Case {
    std::function<double(int)> level;
    double spread;
    int frames, most;
  };
  for (const auto& [level, spread, frames, most] :
       {// 4 deviations of a normal distribution: 3 in 100,000.
        Case{[](int) { return 0.01; }, 0.2, 100'000, 20},
        Case{[](int i) { return 0.01 + 0.2 * std::exp(-i / 40.0); }, 0.1, 1000, 1},
        Case{[](int i) { return 0.01 * std::exp(i / 5000.0); }, 0.2, 20'000, 10}}) {
    NoveltyOfAStream novelty;
    Losses losses;
    for (int i = 0; i < frames; ++i) novelty.see(losses.about(level(i), spread));
    EXPECT_LE(novelty.marked(), most);
    EXPECT_TRUE(novelty.see(float(3 * level(frames))));
  }
}

TEST(Novelty, NothingIsMarkedWhileSettling) {
  NoveltyOfAStream novelty;
  for (int i = 0; i < 299; ++i) EXPECT_FALSE(novelty.see(i % 50 == 49 ? 1.0f : 0.001f));
  EXPECT_EQ(novelty.deviation(), 0.0);
}

TEST(Novelty, PerfectPredictionsAreNoNeedle) {
  NoveltyOfAStream novelty;
  novelty.repeat(1000, 0.01f);
  EXPECT_FALSE(novelty.see(0.0105f)) << "no deviation at all, and yet 5 % is not news";
  EXPECT_TRUE(novelty.see(0.02f));
}

TEST(Novelty, AnEventTakesItsMinimumOfFrames) {
  Settled novelty({.minimum = 3});
  const std::int64_t before = novelty.events();
  novelty.repeat(2, 0.1f);
  novelty.see(0.01f);
  EXPECT_EQ(novelty.events(), before) << "two are not enough";
  novelty.repeat(3, 0.1f);
  EXPECT_EQ(novelty.events(), before + 1);
  EXPECT_EQ(novelty.event_began(), 3003) << "with the first of them";
}

TEST(Novelty, NoEventBeginsWhileItCoolsDown) {
  Settled novelty({.cooldown = 10});
  const std::int64_t before = novelty.events();
  novelty.see(0.1f);
  novelty.repeat(100, 0.01f);
  novelty.see(0.1f);
  EXPECT_EQ(novelty.events(), before + 1) << "4 s after the first, which lasted 1 s";
  novelty.repeat(200, 0.01f);
  novelty.see(0.1f);
  EXPECT_EQ(novelty.events(), before + 2);
}

TEST(Novelty, WhatIsNoNumberIsUnexpectedAndTeachesNothing) {
  Settled novelty;
  EXPECT_TRUE(novelty.see(std::numeric_limits<float>::quiet_NaN()));
  EXPECT_TRUE(novelty.see(std::numeric_limits<float>::infinity()));
  EXPECT_FALSE(novelty.see(0.01f));
  EXPECT_FALSE(novelty.see(0.0f)) << "better than usual";
  int marked = 0;
  for (int i = 0; i < 20; ++i) marked += novelty.see(0.0f) ? 1 : 0;
  EXPECT_GT(marked, 10) << "for so long: a frozen picture";
}

TEST(ChangedShare, CountsCellsThatAreNotAsTheyWereLately) {
  ChangedShare changed(1, 24, 32);
  std::vector<float> picture(24 * 32, 0.5f);
  for (int i = 0; i < 100; ++i) changed.see(picture.data());
  EXPECT_EQ(changed.see(picture.data()), 0.0);
  std::fill_n(picture.begin(), 24 * 8, 0.8f);
  EXPECT_EQ(changed.see(picture.data()), 0.25);
}

}  // namespace
}  // namespace millrace::app
