#include "tools/app/classes/class_memory.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tools/app/outputs/class_scores.h"
#include "tools/app/outputs/live_view.h"

namespace millrace::app {
namespace {

constexpr std::int64_t kEdge = 8;

/// flatten, linear: features are the pixels.
std::shared_ptr<const stages::Network> network(std::int64_t classes) {
  return stages::build_network(
      {.preset = "layers", .layer = {{"relu"}, {"flatten"}, {"linear", {{"out", classes}}}}},
      {1, kEdge, kEdge}, stages::Gives::vector);
}

struct Teaching {
  explicit Teaching(std::int64_t classes, ClassMemoryOptions options = {})
      : net(network(classes)),
        memory(net, stages::initial_state(*net, 0), options),
        random(at::detail::createCPUGenerator(7)) {}

  /// A noisy frame whose column `label` is bright, labelled `told`.
  at::Tensor frame(int label) {
    at::Tensor made = at::rand({1, kEdge, kEdge}, random) * noise;
    made.select(2, label) += bright;
    return made;
  }
  void see(int label, int told, int answer = -1) {
    const at::Tensor made = frame(label);
    memory.see({made.const_data_ptr<float>(), std::size_t(made.numel())}, told,
               answer < 0 ? told : answer, double(seen++) / 10);
  }
  int answer(int label) {
    const at::Tensor made = frame(label).flatten();
    return int((memory.head()[0].second.mv(made) + memory.head()[1].second).argmax().item<long>());
  }
  bool unlike(int label) {
    const at::Tensor made = frame(label);
    std::vector<float> thumbnail(Likeness::values(1));
    Likeness::shrink({made.const_data_ptr<float>(), std::size_t(made.numel())}, 1, kEdge, kEdge,
                     thumbnail);
    return memory.likeness().unlike(thumbnail);
  }

  std::shared_ptr<const stages::Network> net;
  ClassMemory memory;
  at::Generator random;
  std::int64_t seen = 0;
  double noise = 0.5, bright = 0.4;
};

TEST(ClassMemory, IsTheWeightedRidgeRegression) {
  ClassMemoryOptions options{.places = 12, .scores = false};
  Teaching teaching(3, options);
  teaching.noise = 0.2;  // 1.4 times the largest value is below 1
  std::vector<at::Tensor> frames;
  std::vector<int> labels = {0, 0, 0, 0, 0, 1, 1, 2, 2, 2};
  for (const int label : labels) {
    frames.push_back(teaching.frame(label));
    teaching.memory.see({frames.back().const_data_ptr<float>(), std::size_t(kEdge * kEdge)}, label,
                        label, 0);
  }
  ASSERT_TRUE(teaching.memory.solve(true));
  EXPECT_FALSE(teaching.memory.solve(true)) << "nothing is new";
  // The normal equations, with the bias unpenalized: features and targets from their means.
  const at::Tensor x = at::stack(frames).flatten(1).to(at::kDouble);
  at::Tensor y = at::zeros({10, 3}, at::kDouble), w = at::empty({10}, at::kDouble);
  const double count[] = {5, 2, 3};
  for (int i = 0; i < 10; ++i) {
    y[i][labels[std::size_t(i)]] = 1;
    w[i] = 1 / (3 * count[labels[std::size_t(i)]]);
  }
  const at::Tensor mean = w.unsqueeze(0).mm(x), target = y - 1.0 / 3;
  const at::Tensor inside = x - y.mm((y / y.sum(0)).t().mm(x));  // the deviation within classes
  at::Tensor rate = w.unsqueeze(0).mm(inside.square());
  rate = (rate + rate.mean()).rsqrt();
  const at::Tensor off = (x - mean) * rate;
  const double size = (off * off).sum(1).dot(w).item<double>();
  const at::Tensor weighted = (off * w.unsqueeze(1)).t();
  // No score may change with the light: here, by the classes' means.
  const at::Tensor classes = (y / y.sum(0)).t().mm(x) * rate,
                   light = classes.t().mm(classes) * ((0.3 * 0.3 + 0.4 * 0.4) * 0.1 / 6);
  const at::Tensor expected =
      at::linalg_solve(
          weighted.mm(off) + light + at::eye(kEdge * kEdge, at::kDouble) * (0.01 * size / 10),
          weighted.mm(target))
          .t() *
      rate;
  const at::Tensor weight = teaching.memory.head()[0].second.to(at::kDouble);
  EXPECT_LT((weight - expected).abs().max().item<double>(),
            1e-4 * expected.abs().max().item<double>());
  const at::Tensor bias = teaching.memory.head()[1].second.to(at::kDouble);
  EXPECT_TRUE(at::allclose(bias, 1.0 / 3 - expected.mv(mean.flatten()), 1e-3, 1e-4));
}

TEST(ClassMemory, AnswersInAnotherLight) {
  Teaching teaching(3);
  teaching.noise = 0.1;
  for (int n = 0; n < 90; ++n) teaching.see(n % 3, n % 3);
  teaching.memory.solve(true);
  for (const double light : {0.6, 0.8, 1.2, 1.6}) {
    teaching.noise = 0.1 * light;
    teaching.bright = 0.4 * light;
    for (int label = 0; label < 3; ++label) {
      EXPECT_EQ(teaching.answer(label), label) << light;
      EXPECT_FALSE(teaching.unlike(label)) << light;
    }
  }
  teaching.bright = 0;
  EXPECT_TRUE(teaching.unlike(0)) << "no column is bright";
}

TEST(ClassMemory, LightMayBeTheClass) {
  Teaching teaching(2);
  teaching.noise = 0.02;
  const auto light = [&](int label) { teaching.bright = label == 0 ? 0.4 : 0.38; };
  for (int n = 0; n < 80; ++n) {
    light(n % 2);
    teaching.see(0, n % 2);
  }
  teaching.memory.solve(true);
  int right = 0;
  for (int n = 0; n < 200; ++n) {
    light(n % 2);
    right += teaching.answer(0) == n % 2;
  }
  EXPECT_GE(right, 196);
}

TEST(ClassMemory, RemembersAsManyOfAClassSeenSeldom) {
  Teaching teaching(3, {.places = 30});
  for (int n = 0; n < 1000; ++n) teaching.see(n % 100 == 99 ? 1 : 0, n % 100 == 99 ? 1 : 0);
  for (int n = 0; n < 12; ++n) teaching.see(2, 2);
  teaching.memory.solve(true);
  EXPECT_EQ(teaching.memory.told().counts, (std::vector<std::int64_t>{10, 10, 10}));
  for (int label = 0; label < 3; ++label) EXPECT_EQ(teaching.answer(label), label);
}

TEST(ClassMemory, ForgetsFramesBeforeAClickThatCameLate) {
  for (const double late : {0.0, 3.0}) {
    Teaching teaching(2, {.places = 400, .late_s = late});
    for (int n = 0; n < 400; ++n) {
      const int shown = n / 100 % 2, told = std::max(0, n - 20) / 100 % 2;
      teaching.see(shown, told);
    }
    teaching.memory.solve(true);
    const auto counts = teaching.memory.told().counts;
    EXPECT_NEAR(double(std::accumulate(counts.begin(), counts.end(), 0)),
                late > 0 ? 400 - 3 * 30 : 400, 3);
  }
  Teaching brief(2, {.places = 40, .late_s = 3});
  for (int n = 0; n < 40; ++n) brief.see(n / 4 % 2, n / 4 % 2);
  brief.memory.solve(true);
  EXPECT_GE(brief.memory.told().counts[0], 10) << "at most half of what a label lasted";
}

TEST(ClassMemory, ForgetsAClassWithItsFramesThatAreStillUnderWay) {
  Teaching teaching(3);
  using Counts = std::vector<std::int64_t>;
  const auto teach = [&](int scene, int told, int frames) {
    for (int n = 0; n < frames; ++n) teaching.see(scene, told);
    teaching.memory.solve(true);
    return teaching.memory.told();
  };
  const auto forget = [&](int label) {
    teaching.memory.forget(label, double(teaching.seen) / 10);
    return teaching.memory.told();
  };
  teach(0, 0, 20);
  EXPECT_EQ(teach(1, 2, 20).counts, (Counts{20, 0, 20})) << "a mistake";
  EXPECT_EQ(forget(2).counts, (Counts{20, 0, 0}));
  EXPECT_FALSE(teaching.memory.told().likeness->knows(2));
  EXPECT_EQ(teach(1, 2, 5).counts, (Counts{20, 0, 0})) << "under way";
  EXPECT_EQ(teach(1, 1, 20).counts, (Counts{20, 20, 0}));
  EXPECT_EQ(teach(2, 2, 20).counts, (Counts{20, 20, 20})) << "taught again";
  for (int label = 0; label < 3; ++label) EXPECT_EQ(teaching.answer(label), label);
  for (int label = 0; label < 3; ++label) forget(label);
  EXPECT_EQ(teaching.memory.told().counts, (Counts{0, 0, 0}));
  for (int label = 0; label < 3; ++label)
    EXPECT_EQ(teach(label, label, 2).counts, (Counts{0, 0, 0}));
  EXPECT_FALSE(teaching.memory.told().likeness->any());
}

/// Frames of class 1 arrive a second after a label of class 0, and must not count as class 0.
TEST(ClassMemory, FramesThatFollowALabelCountUntilTheClassChanges) {
  struct Case {
    double following, noise;
    std::int64_t each;
  };
  for (const auto& [following, noise, each] :
       {Case{0, 0.05, 5}, {2, 0.05, 5 * 11}, {2, 0.5, 5} /* each frame is another picture */}) {
    Teaching teaching(2, {.places = 400, .following_s = following});
    teaching.noise = noise;
    teaching.bright = 0.1;
    for (int label = 0; label < 10; ++label)
      for (int n = 0; n < 30; ++n)
        teaching.see(label == 4 && n >= 10 ? 1 : label % 2, n > 0 ? -1 : label % 2, 0);
    teaching.memory.solve(true);
    EXPECT_EQ(teaching.memory.told().counts, (std::vector<std::int64_t>{each, each}));
    if (noise > 0.1) continue;
    const auto mean = teaching.memory.likeness().json(true)[0]["mean"];
    double off = 0;  // columns 1 and 7 differ only in frames of class 1
    for (int row = 0; row < Likeness::kHeight; ++row)
      off += mean[row * Likeness::kWidth + 2].get<double>() -
             mean[row * Likeness::kWidth + 14].get<double>();
    EXPECT_LT(off / Likeness::kHeight, 1.5) << "255ths";
    for (int n = 0; n < 20; ++n) EXPECT_EQ(teaching.answer(n % 2), n % 2);
  }
}

TEST(ClassMemory, LabelledFramesTakeThePlacesOfThoseThatFollow) {
  Teaching teaching(2, {.places = 20, .following_s = 2});
  teaching.noise = 0.05;
  const auto following = [&] {
    return teaching.memory.entries()[3].second.lt(0).sum().item<int>();
  };
  for (int n = 0; n < 80; ++n) teaching.see(n / 40, n % 40 == 0 ? n / 40 : -1, 0);
  EXPECT_GT(following(), 10);
  for (int n = 0; n < 100; ++n) teaching.see(n % 2, n % 2);
  EXPECT_EQ(following(), 0);
}

TEST(ClassMemory, AReturnIsAnsweredBeforeItIsLearnedFrom) {
  Teaching teaching(2, {.places = 64});
  for (int n = 0; n < 40; ++n) {
    teaching.see(n / 20, n / 20);
    teaching.memory.solve();
  }
  for (int n = 0; n < ClassMemory::kJudged; ++n) {
    teaching.see(0, 0);
    EXPECT_FALSE(n > 0 && teaching.memory.solve()) << n;
    if (n == 0) teaching.memory.solve();  // learns the frames before
  }
  teaching.see(0, 0);
  EXPECT_TRUE(teaching.memory.solve());
}

TEST(ClassMemory, WhatAWeightsFileKnowsOfAClassStandsForItUntilItIsLabelledAgain) {
  Teaching before(3);
  for (int n = 0; n < 60; ++n) before.see(n % 2, n % 2);
  before.memory.solve(true);
  const auto file = before.memory.told().likeness->json(/*features=*/true);
  EXPECT_FALSE(Likeness::from(nlohmann::json::parse("{\"mean\": 3}")).any());
  Teaching after(3, {.known = Likeness::from(file)});
  for (int n = 0; n < 20; ++n) after.see(2, 2);  // a new class
  EXPECT_TRUE(after.memory.solve(true));
  int right = 0;
  for (int n = 0; n < 30; ++n) right += after.answer(n % 3) == n % 3;
  EXPECT_GE(right, 28);
  EXPECT_EQ(after.memory.told().counts, (std::vector<std::int64_t>{0, 0, 20}));
  for (int n = 0; n < 20; ++n) after.see(1, 0);  // as class 1 looks in the file
  after.memory.solve(true);
  EXPECT_EQ(after.answer(1), 0);
}

TEST(ClassMemory, StateOfAnotherShapeIsIgnored) {
  Teaching before(2), after(2);
  for (int n = 0; n < 20; ++n) before.see(n % 2, n % 2);
  const stages::StateDict state = before.memory.entries();
  for (std::size_t at = 0; at < state.size(); ++at) {
    for (const bool none : {false, true}) {
      stages::StateDict other = state;
      other[at].second = none ? at::zeros({0}) : other[at].second.unsqueeze(0);
      after.memory.restore(other);
    }
  }
  EXPECT_EQ(after.memory.told().solved, 0);
  after.memory.restore(state);
  EXPECT_EQ(after.memory.told().solved, 1);
}

/// Values of three classes at four pixels.
TEST(FindLargest, APixelWithNoValueAboveTheFloorHasNoClass) {
  const float nan = std::nanf(""), least = -std::numeric_limits<float>::infinity();
  const std::vector<float> numbers = {0, -1, nan, nan,  //
                                      0, -2, nan, -3,   //
                                      1, -1, nan, -5};
  std::vector<float> most(4), classes(4);
  find_largest(numbers.data(), 3, least, -1.0f, most, classes);
  EXPECT_EQ(classes, (std::vector<float>{2, 0, -1, 1}));
  find_largest(numbers.data(), 3, 0, -1.0f, most, classes);
  EXPECT_EQ(classes, (std::vector<float>{2, -1, -1, -1}));
}

TEST(MqttView, AFailureIsToldAndItTriesAgain) {
  Config config;
  config.mqtt.broker = "mqtt://127.0.0.1:1";
  page::Controls controls({});
  std::atomic<int> looks{0};
  MqttView view(
      config,
      [&]() -> page::Snapshot {
        ++looks;
        throw std::runtime_error("no picture");
      },
      nullptr, controls);
  std::string told;
  while (looks < 2) {
    if (told.empty()) told = view.take_note();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(told, "mqtt: no picture");
}

}  // namespace
}  // namespace millrace::app
