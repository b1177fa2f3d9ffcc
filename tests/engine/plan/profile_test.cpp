#include "engine/plan/profile.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/complaint.h"
#include "tests/engine/plan/random_profile.h"

namespace millrace::engine::plan {
namespace {

std::string complaint_about(const std::function<void(Profile&)>& spoil) {
  std::mt19937 random(1);
  Profile profile = random_profile(random, 4);
  spoil(profile);
  return complaint<ProfileError>([&] { check_profile(profile); });
}

TEST(Profile, SaysWhichModuleAndFieldIsWrong) {
  EXPECT_EQ(complaint_about([](Profile&) {}), "");
  EXPECT_EQ(complaint_about([](Profile& p) { p.modules[2].forward.median = -1; }),
            "module 2 (m2): forward is negative");
  EXPECT_EQ(complaint_about([](Profile& p) { p.modules[3].update.spread = -1; }),
            "module 3 (m3): update's spread is negative");
  EXPECT_EQ(complaint_about([](Profile& p) {
              p.modules[1].bytes.stash = std::numeric_limits<double>::quiet_NaN();
            }),
            "module 1 (m1): stash_bytes is not a number");
  EXPECT_EQ(complaint_about([](Profile& p) { p.modules[0].input_gradient.median = 1; }),
            "module 0 (m0): input_gradient must be 0: the first module needs none");
  EXPECT_EQ(complaint_about([](Profile& p) { p.modules[1].tensor_ways = 0; }),
            "module 1 (m1): tensor_ways is less than 1");
  EXPECT_EQ(complaint_about([](Profile& p) { p.modules.clear(); }), "modules: there are none");
  EXPECT_EQ(complaint_about([](Profile& p) {
              p.thread_speedup = {1, 0};
            }),
            "thread_speedup: the value for 2 cores is not positive");
  EXPECT_EQ(complaint_about([](Profile& p) {
              p.hand_offs = {{"cpu-cpu", {{1e3, -1}}}};
            }),
            "hand-off cpu-cpu: ms is negative");
}

TEST(Profile, FitsLatencyAndBandwidth) {
  const Link link = fit_link({{0, 0.5}, {1000, 1.0}, {3000, 2.0}});
  EXPECT_NEAR(link.latency_ms, 0.5, 1e-12);
  EXPECT_NEAR(link.bytes_per_ms, 2000, 1e-9);
  EXPECT_NEAR(fit_link({{1000, 1.0}, {2000, 3.0}}).latency_ms, 0, 1e-12);  // not negative
  EXPECT_EQ(fit_link({{1000, 2.0}}), (Link{2.0, 0}));
  EXPECT_EQ(fit_link({}), Link{});
  EXPECT_EQ(fit_link({{1000, 2.0}, {2000, 1.0}}), (Link{1.5, 0}));  // time does not fall with bytes
}

TEST(Speeds, WhatABusyMachineShowsReachesNoPlan) {
  using Speeds = std::vector<double>;
  EXPECT_EQ(speeds_that_help({{1, 0}, {0.07, 0.01}}), Speeds{1});
  EXPECT_EQ(speeds_that_help({{1, 0}, {1.8, 0.1}, {2.5, 0.1}}), (Speeds{1, 1.8, 2.5}));
  EXPECT_EQ(speeds_that_help({{1, 0}, {1.8, 0.1}, {1.85, 0.2}, {3, 0.1}}), (Speeds{1, 1.8}))
      << "within the spread is no gain";
  EXPECT_EQ(speeds_that_help({{1, 0}}), Speeds{1});
}

}  // namespace
}  // namespace millrace::engine::plan
