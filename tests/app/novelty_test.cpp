#include "tools/app/events/novelty.h"

#include <gtest/gtest.h>

#include <random>

namespace millrace::app {
namespace {

constexpr int kWide = 128, kHigh = 96;

/// A still scene of blobs with sensor noise, at 10 frames a second or the options' rate. Each test
/// changes it.
class Scene {
 public:
  explicit Scene(NoveltyOptions options = {}, double rate = 10)
      : fps(options.fps > 0 ? options.fps : rate), novelty(3, kHigh, kWide, options) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (float& value : grain_) value = normal(random_);
    std::uniform_real_distribution<float> place(0, 1);
    for (int blob = 0; blob < 60; ++blob) {
      const float x = kWide * place(random), y = kHigh * place(random),
                  size = 4 + 12 * place(random);
      const float colour[] = {place(random), place(random), place(random)};
      put(still_, int(x), int(y), int(size), int(size), colour);
    }
  }

  /// Shows `frames` pictures, each changed by `change`.
  using Picture = std::vector<float>;
  void show(
      int frames, const std::function<void(Picture&)>& change = [](Picture&) {},
      float noise = 0.01f) {
    for (int i = 0; i < frames; ++i) {
      Picture now = still_;
      change(now);
      const std::size_t from = random_() % (grain_.size() - now.size());
      for (std::size_t k = 0; k < now.size(); ++k)
        now[k] = std::clamp(now[k] + noise * grain_[from + k], 0.0f, 1.0f);
      see(now);
    }
  }
  void see(const Picture& now) {
    novelty.see(
        {.picture = now.data(), .loss = 0.01f, .frame = frame, .seconds = double(frame) / fps});
    ++frame;
  }

  static void put(Picture& on, int left, int top, int wide, int high, const float (&colour)[3]) {
    for (int c = 0; c < 3; ++c) {
      for (int y = std::max(0, top); y < std::min(kHigh, top + high); ++y)
        for (int x = std::max(0, left); x < std::min(kWide, left + wide); ++x)
          on[std::size_t((c * kHigh + y) * kWide + x)] = colour[c];
    }
  }
  static void parcel(Picture& on) { put(on, 60, 40, 6, 6, {0.9f, 0.1f, 0.8f}); }
  static void dim(Picture& on, float gain) {
    for (float& value : on) value *= gain;
  }

  std::vector<NoveltyEvent> events() const { return novelty.latest(); }

  const double fps;  ///< of the stream, whether the options tell it or not
  Novelty novelty;
  std::int64_t frame = 0;

 private:
  Picture still_ = Picture(3 * kHigh * kWide, 0.4f);
  Picture grain_ = Picture(8 * kHigh * kWide);  ///< noise, of which each picture takes a part
  std::mt19937 random_{7};
};

TEST(Novelty, ASmallThingIsFoundAtItsPlaceAndBecomesUsual) {
  Scene scene;
  scene.show(910);
  EXPECT_TRUE(scene.events().empty());
  for (int n = 0; n < 5 && !scene.novelty.begun(); ++n) scene.show(1, Scene::parcel);
  ASSERT_EQ(scene.events().size(), 1u);
  std::vector<float> usual(3 * kWide * kHigh), difference(usual.size());
  scene.novelty.compare(usual, difference);
  const std::size_t green = kHigh * kWide, parcel = green + 42 * kWide + 62, beside = parcel + 30;
  EXPECT_GT(usual[parcel], 0.2f);  // of the parcel: 0.1
  EXPECT_GT(difference[parcel], 0.4f);
  EXPECT_LT(difference[beside], 0.2f);
  const NoveltyEvent event = scene.events()[0];
  EXPECT_EQ(event.reason, Reason::local);
  EXPECT_EQ(event.frame, 910);
  EXPECT_NEAR(event.left + event.width / 2.0, 63, 4);
  EXPECT_NEAR(event.top + event.height / 2.0, 43, 4);
  EXPECT_TRUE(scene.novelty.in_event());
  EXPECT_GE(scene.novelty.event_peak(), scene.novelty.threshold());
  scene.show(1500, Scene::parcel);
  EXPECT_EQ(scene.events().size(), 1u) << "once";
  EXPECT_FALSE(scene.novelty.in_event()) << "what lasts is usual";
}

TEST(Novelty, AnEventLastsForTheMinimumAndIsDatedFromItsBeginning) {
  const auto night = [](Scene::Picture& on) { Scene::dim(on, 0); };
  for (const auto& what : {std::function<void(Scene::Picture&)>(Scene::parcel), {night}}) {
    for (const int minimum : {1, 3, 8, 30, 100}) {
      Scene scene({.minimum = minimum});
      scene.show(910);
      while (!scene.novelty.begun() && scene.frame < 1100) scene.show(1, what);
      ASSERT_EQ(scene.events().size(), 1u) << minimum;
      EXPECT_GE(scene.frame, 910 + minimum);
      EXPECT_LE(scene.frame, 920 + minimum);
      const int stands_after = minimum > 60 ? 10 : 2;  // what is new for longer counts by its stay
      EXPECT_NEAR(double(scene.events()[0].frame), 910, stands_after) << minimum;
    }
  }
}

TEST(Novelty, APlaceWhereNothingWasForLongTellsOfTheSameThingAgain) {
  Scene scene;
  scene.show(910);
  for (const std::size_t times : {1, 2, 3}) {
    scene.show(60, Scene::parcel);
    EXPECT_EQ(scene.events().size(), times);
    scene.show(100);
    scene.show(60, Scene::parcel);
    EXPECT_EQ(scene.events().size(), times) << "soon after";
    scene.show(600);
  }
}

TEST(Novelty, ACoveredCameraForgetsNoPlace) {
  Scene scene;
  scene.show(910);
  scene.show(60, Scene::parcel);
  scene.show(100);
  scene.show(800, [](Scene::Picture& on) { std::ranges::fill(on, 0.07f); });
  scene.show(100);
  scene.show(60, Scene::parcel);
  EXPECT_EQ(scene.novelty.events_of(Reason::local), 1);
}

TEST(Novelty, PlacesSettleAtRestOrAfter90Seconds) {
  const auto thin = [](Scene::Picture& on) { Scene::put(on, 20, 30, 1, 14, {0.9f, 0.1f, 0.8f}); };
  for (const int fps : {10, 25}) {
    Scene quiet({.fps = double(fps)}), busy({.fps = double(fps)});
    quiet.show(8 * fps);
    quiet.show(10, thin);
    EXPECT_EQ(quiet.events().size(), 1u) << fps;
    Scene leafy({.fps = double(fps)});
    for (int gust = 0; gust < 8; ++gust) {
      leafy.show(fps * 27 / 10);
      leafy.show(fps * 4 / 10, [](Scene::Picture& on) { Scene::put(on, 100, 8, 9, 9, {0, 1, 0}); });
    }
    leafy.show(10, Scene::parcel);
    ASSERT_GE(leafy.events().size(), 1u) << fps;
    EXPECT_NEAR(leafy.events().back().left, 58, 8);
    const auto pass = [&](Scene::Picture& on) {
      Scene::put(on, int(busy.frame * 20 / fps % kWide), 70, 6, 10, {0.2f, 0.2f, 0.8f});
    };
    busy.show(80 * fps, pass);
    busy.show(10, [&](Scene::Picture& on) { pass(on), Scene::parcel(on); });
    busy.show(12 * fps, pass);
    EXPECT_TRUE(busy.events().empty()) << fps;
    busy.show(20, [&](Scene::Picture& on) {
      pass(on), Scene::put(on, 20, 30, 8, 8, {0.9f, 0.9f, 0.1f});
    });
    EXPECT_EQ(busy.events().size(), 1u) << fps;
  }
}

TEST(Novelty, WholePictureChangesHaveTheirReasons) {
  const std::vector<std::pair<Reason, std::function<void(Scene::Picture&)>>> cases = {
      {Reason::light, [](Scene::Picture& on) { Scene::dim(on, 0.5f); }},
      {Reason::covered, [](Scene::Picture& on) { std::ranges::fill(on, 0.07f); }},
      {Reason::covered,
       [random = std::minstd_rand(1)](Scene::Picture& on) mutable {
         std::normal_distribution<float> noise(0.05f, 0.012f);
         std::ranges::generate(on, [&] { return noise(random); });
       }},
      {Reason::moved,
       [](Scene::Picture& on) { std::shift_right(on.begin(), on.end(), 3 * kWide + 4); }},
      {Reason::picture, [](Scene::Picture& on) { std::ranges::reverse(on); }}};
  for (const auto& [reason, change] : cases) {
    Scene scene;
    scene.show(400);
    scene.show(10, change, 0.002f);
    ASSERT_EQ(scene.events().size(), 1u) << name_of(reason);
    EXPECT_STREQ(name_of(scene.events()[0].reason), name_of(reason));
    EXPECT_EQ(scene.events()[0].frame, 400);
    EXPECT_FALSE(scene.events()[0].has_box());
    scene.show(100, change, 0.002f);
    EXPECT_EQ(scene.events().size(), 1u) << name_of(reason);
    EXPECT_FALSE(scene.novelty.in_event());
  }
}

TEST(Novelty, AutomaticExposureBecomesUsualAndASwitchedLightDoesNot) {
  Scene exposed, switched;
  for (int car = 0; car < 30; ++car) {
    exposed.show(60);
    for (int i = 0; i < 10; ++i)
      exposed.show(1, [i](Scene::Picture& on) { Scene::dim(on, 1 - 0.04f * float(i)); });
  }
  EXPECT_LE(exposed.events().size(), 2u);
  Scene lorry;
  lorry.show(910);
  lorry.show(50, [](Scene::Picture& on) {
    Scene::dim(on, 0.85f);
    Scene::put(on, 40, 20, 30, 40, {0.9f, 0.9f, 0.9f});
  });
  EXPECT_EQ(lorry.novelty.events_of(Reason::light), 0) << "the camera exposes less";
  switched.show(400);
  for (int time = 0; time < 4; ++time) {
    switched.show(100, [](Scene::Picture& on) { Scene::dim(on, 0.4f); });
    switched.show(100);
  }
  EXPECT_EQ(switched.events().size(), 8u);
}

TEST(Novelty, LargeThingsThatPassBecomeUsual) {
  Scene scene;
  scene.show(400);
  for (int time = 0; time < 8; ++time) {
    scene.show(20, [](Scene::Picture& on) {
      Scene::put(on, 0, 0, kWide / 2, kHigh, {0.9f, 0.8f, 0.7f});
    });
    scene.show(150);
  }
  EXPECT_GE(scene.events().size(), 1u);
  EXPECT_LE(scene.events().size(), 3u);
  scene.show(10, [](Scene::Picture& on) { std::ranges::fill(on, 0.07f); });
  EXPECT_EQ(scene.events().back().reason, Reason::covered);
}

TEST(Novelty, AHandThatLeavesTheLensIsNoEventAndOneThatComesBackIs) {
  Scene scene;
  scene.show(400);
  for (const int long_for : {10, 100, 400}) {
    const std::size_t before = scene.events().size();
    scene.show(long_for, [](Scene::Picture& on) { std::ranges::fill(on, 0.07f); });
    EXPECT_EQ(scene.events().size(), before + 1) << long_for;
    EXPECT_EQ(scene.events().back().reason, Reason::covered);
    scene.show(200);
    EXPECT_EQ(scene.events().size(), before + 1) << long_for;
    EXPECT_FALSE(scene.novelty.in_event());
  }
  scene.show(10, [](Scene::Picture& on) { Scene::dim(on, 0.5f); });
  EXPECT_EQ(scene.events().back().reason, Reason::light);
}

TEST(Novelty, AFrozenPictureIsFoundUntilItMoves) {
  for (const double fps : {10.0, 15.0}) {
    Scene scene({}, fps);
    scene.show(int(40 * fps));
    for (std::size_t time = 1; time < 3; ++time) {
      Scene::Picture frozen;
      scene.show(
          1, [&](Scene::Picture& now) { frozen = now; }, 0);
      for (int i = 0; i < int(2 * fps); ++i) scene.see(frozen);
      EXPECT_EQ(scene.events().size(), time - 1) << "a clock may tick soon";
      for (int i = 0; i < int(1.5 * fps); ++i) scene.see(frozen);
      ASSERT_EQ(scene.events().size(), time);
      EXPECT_EQ(scene.events().back().reason, Reason::frozen);
      for (int i = 0; i < int(20 * fps); ++i) {
        Scene::Picture now = frozen;
        if (i % int(5 * fps) == 0) Scene::dim(now, 0.99f);  // as key frames do
        scene.see(now);
      }
      EXPECT_TRUE(scene.novelty.in_event());
      scene.show(int(20 * fps));
      EXPECT_FALSE(scene.novelty.in_event());
    }
    EXPECT_EQ(scene.events().size(), 2u);
  }
}

TEST(Novelty, DaylightNoiseAndKeyframesRaiseNothing) {
  Scene day;
  day.show(700, [](Scene::Picture& on) { Scene::dim(on, 0.4f); });
  for (int i = 0; i < 600; ++i)
    day.show(1, [i](Scene::Picture& on) { Scene::dim(on, 0.4f + 0.001f * float(i)); });
  EXPECT_TRUE(day.events().empty());
  for (const float noise : {0.0f, 0.03f, 0.1f}) {
    Scene quiet;
    for (int i = 0; i < 60; ++i) {
      quiet.show(
          29, [](Scene::Picture&) {}, noise);
      quiet.show(
          1, [](Scene::Picture& on) { Scene::dim(on, 1.01f); }, 2 * noise);
    }
    EXPECT_TRUE(quiet.events().empty())
        << noise << " " << name_of(quiet.events()[0].reason) << " " << quiet.events()[0].frame;
  }
}

TEST(Novelty, WhatPassesOftenIsUsualButNotWhoLeavesThePath) {
  Scene scene;
  const auto walk = [&](int top) {
    scene.show(1, [&](Scene::Picture& on) {
      const int left = int(1.5f * float(scene.frame)) % (kWide + 20) - 10;
      Scene::put(on, left, top, 6, 14, {0.9f, 0.1f, 0.8f});
    });
  };
  while (scene.frame < 1500) walk(20);
  EXPECT_TRUE(scene.events().empty());
  while (scene.frame < 1560) walk(49);
  ASSERT_EQ(scene.events().size(), 1u);
  EXPECT_EQ(scene.events()[0].reason, Reason::local);
  EXPECT_NEAR(scene.events()[0].top + scene.events()[0].height / 2.0, 56, 6);
}

TEST(Novelty, ZonesReasonsAndCooldownAreKept) {
  const Zone left{"door", {{0, 0}, {0.3, 0}, {0.3, 1}, {0, 1}}, 1},
      middle{"", {{0.3, 0.2}, {0.7, 0.2}, {0.7, 0.7}, {0.3, 0.7}}, 1};
  struct Case {
    NoveltyOptions options;
    std::size_t events;
  };
  for (const Case& one :
       {Case{{.zones = {left}}, 0}, Case{{.zones = {middle}}, 1}, Case{{.ignored = {middle}}, 0},
        Case{{.without = {Reason::local}}, 0}, Case{{.threshold = 1000}, 0}}) {
    Scene scene(one.options);
    scene.show(910);
    scene.show(10, Scene::parcel);
    EXPECT_EQ(scene.events().size(), one.events);
  }
  Scene scene({.cooldown = 60});
  scene.show(700);
  for (int i = 0; i < 3; ++i) {
    scene.show(10, [](Scene::Picture& on) { Scene::dim(on, 0.5f); });
    scene.show(40);
  }
  EXPECT_EQ(scene.events().size(), 1u);
}

TEST(Novelty, WhatAnEarlierRunAcceptedIsUsualAndAnotherThingThereIsNot) {
  Scene scene;
  scene.novelty.accept({60, 40, 8, 8});
  scene.show(910);
  for (int times = 0; times < 3; ++times) {
    scene.show(70, Scene::parcel);
    scene.show(600);
  }
  EXPECT_TRUE(scene.events().empty());
  scene.show(100);
  scene.show(10, [](Scene::Picture& on) { Scene::put(on, 58, 40, 8, 8, {0.1f, 0.9f, 0.1f}); });
  EXPECT_EQ(scene.events().size(), 1u);
}

TEST(Novelty, ACameraThatIsGoneIsAnEventAndWhatIsAcceptedRaisesNone) {
  Scene scene;
  scene.show(910);
  const auto lost = scene.novelty.lose_camera(scene.frame);
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->reason, Reason::camera);
  EXPECT_EQ(scene.novelty.events_of(Reason::camera), 1);
  Scene flapping({.cooldown = 600});
  EXPECT_TRUE(flapping.novelty.lose_camera(1));
  EXPECT_FALSE(flapping.novelty.lose_camera(2));
  EXPECT_FALSE(scene.novelty.accept(99));
  EXPECT_TRUE(scene.novelty.accept(1));
  EXPECT_FALSE(scene.novelty.lose_camera(scene.frame));
  scene.show(5, Scene::parcel);
  ASSERT_EQ(scene.novelty.events(), 2);
  EXPECT_TRUE(scene.novelty.accept(2));
  scene.show(1000);
  scene.show(200, Scene::parcel);
  EXPECT_EQ(scene.novelty.events(), 2);
  for (int i = 0; i < 2; ++i) {
    scene.show(10, [](Scene::Picture& on) { Scene::dim(on, 0.5f); });
    EXPECT_EQ(scene.novelty.events(), 3);
    EXPECT_TRUE(scene.novelty.accept(3));
    scene.show(40);
  }
}

}  // namespace
}  // namespace millrace::app
