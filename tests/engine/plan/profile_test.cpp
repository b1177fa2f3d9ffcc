#include <gtest/gtest.h>

#include <cmath>

#include "engine/monitor/median.h"
#include "engine/plan/profile.h"
#include "engine/plan_files/profile_json.h"
#include "tests/complaint.h"
#include "tests/engine/plan/random_profile.h"

namespace millrace::engine::plan {
namespace {

TEST(Profile, SaysWhichModuleAndFieldIsWrong) {
  const std::pair<std::function<void(Profile&)>, const char*> cases[] = {
      {[](Profile&) {}, ""},
      {[](Profile& p) { p.modules[2].forward.median = -1; }, "module 2 (m2): forward is negative"},
      {[](Profile& p) { p.modules[3].update.spread = -1; },
       "module 3 (m3): update's spread is negative"},
      {[](Profile& p) { p.modules[1].bytes.stash = NAN; },
       "module 1 (m1): stash_bytes is not a number"},
      {[](Profile& p) { p.modules[0].input_gradient.median = 1; },
       "module 0 (m0): input_gradient must be 0: the first module needs none"},
      {[](Profile& p) { p.modules[1].tensor_ways = 0; },
       "module 1 (m1): tensor_ways is less than 1"},
      {[](Profile& p) { p.modules.clear(); }, "modules: there are none"},
      {[](Profile& p) {
         p.thread_speedup.assign({1, 0});
       },
       "thread_speedup: the value for 2 cores is not positive"},
      {[](Profile& p) {
         p.hand_offs.assign({{"cpu-cpu", {{1e3, -1}}}});
       },
       "hand-off cpu-cpu: ms is negative"}};
  std::mt19937 random(1);
  const Profile good = random_profile(random, 4);
  for (const auto& [spoil, complaint_of] : cases) {
    Profile profile = good;
    spoil(profile);
    EXPECT_EQ(complaint<ProfileError>([&] { check_profile(profile); }), complaint_of);
  }
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

/// A chain of a, b, c, d with a skip from a to c; listed out of order, as graphs are.
const char* const kSkip =
    "node10 -- Linear(4, 2) -- forward_compute_time=4.000, backward_compute_time=8.000, "
    "activation_size=[40.0; 2.0], parameter_size=7.000\n"
    "node1 -- Input -- forward_compute_time=17.0, backward_compute_time=0.0, activation_size=99.0, "
    "parameter_size=0.0\n"
    "node2 -- Conv2d(3, 4) -- forward_compute_time=1.0, backward_compute_time=2.0, "
    "activation_size=10.0, parameter_size=5.0\n"
    "node9 -- Add -- forward_compute_time=3.0, backward_compute_time=1.0, activation_size=30.0, "
    "parameter_size=0.0\n"
    "node3 -- ReLU -- forward_compute_time=2.0, backward_compute_time=1.0, activation_size=20.0, "
    "parameter_size=0.0\n"
    "\tnode1 -- node2\n\tnode2 -- node3\n\tnode3 -- node9\n\tnode2 -- node9\n\tnode9 -- node10\n";

TEST(PipedreamGraph, BecomesAChainWhoseCutsCarryWhatIsStillRead) {
  const Profile profile = profile_from_graph(kSkip, "skip", 128);
  ASSERT_EQ(profile.modules.size(), 4u);
  const char* const names[] = {"node2 Conv2d", "node3 ReLU", "node9 Add", "node10 Linear"};
  // Behind node2 its own output; behind node3 that of node2 as well, which node9 still reads.
  const double activations[] = {10, 30, 30, 0};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(profile.modules[i].name, names[i]);
    EXPECT_EQ(profile.modules[i].bytes.activation, activations[i]);
  }
  EXPECT_EQ(profile.frames, 128);
  EXPECT_EQ(profile.modules[3].bytes.stash, 42);  // a list adds up
  EXPECT_EQ(profile.modules[3].bytes.weight, 7);
  // The backward is halved where there are weights; the first layer's is for its weights alone.
  EXPECT_EQ(profile.modules[0].ms(), (StepCosts{1, 0, 2, 0}));
  EXPECT_EQ(profile.modules[1].ms(), (StepCosts{2, 1, 0, 0}));
  EXPECT_EQ(profile.modules[3].ms(), (StepCosts{4, 4, 4, 0}));
}

TEST(PipedreamGraph, FollowsTheNumbersWhereBranchesLeaveAChoice) {
  std::string text;
  for (const char* node : {"node1", "node12", "node3", "node2", "node20"}) {
    text += std::string(node) +
            " -- A -- forward_compute_time=1, backward_compute_time=1, activation_size=8, "
            "parameter_size=1\n";
  }
  // Two branches from node1, by node12 and by node2 and node3, that meet in node20.
  text +=
      "\tnode1 -- node12\n\tnode1 -- node2\n\tnode2 -- node3\n\tnode12 -- node20\n"
      "\tnode3 -- node20\n";
  const Profile profile = profile_from_graph(text, "g", 1);
  std::string order;
  for (const ModuleProfile& module : profile.modules) order += module.name + ", ";
  EXPECT_EQ(order, "node1 A, node2 A, node3 A, node12 A, node20 A, ");
  // Behind node2, its own output and node1's, which node12 still reads; behind node12 two ends.
  EXPECT_EQ(profile.modules[1].bytes.activation, 16);
  EXPECT_EQ(profile.modules[3].bytes.activation, 16);
}

TEST(PipedreamGraph, NamesLineAndFieldOfWhatIsWrong) {
  const auto complaint_about = [](const std::string& text) {
    return complaint<ProfileError>([&] { profile_from_graph(text, "g", 1); });
  };
  const std::string good =
      "node1 -- A -- forward_compute_time=1, backward_compute_time=1, activation_size=1, "
      "parameter_size=1\n";
  EXPECT_EQ(complaint_about(good), "");
  EXPECT_EQ(complaint_about(good + "node2 -- B\n"), "g:2: a layer is \"NAME -- WHAT -- FIGURES\"");
  EXPECT_EQ(complaint_about(good + "node2 -- B -- forward_compute_time=1\n"),
            "g:2: backward_compute_time is missing");
  EXPECT_EQ(complaint_about("node2 -- B -- forward_compute_time=-1\n"),
            "g:1: forward_compute_time is negative");
  EXPECT_EQ(complaint_about("node2 -- B -- forward_compute_time=x\n"),
            "g:1: forward_compute_time is not a number");
  EXPECT_EQ(complaint_about(good + "\tnode1 -- node5\n"), "g:2: no layer is called node5");
  EXPECT_EQ(complaint_about(good + good), "g:2: second node1");
  EXPECT_EQ(complaint_about(good + "\tnode1 -- node1\n"), "g: the edges form a cycle");
  EXPECT_EQ(complaint_about(""), "g:0: there are no layers");
}

Profile sample() {
  std::mt19937 random(3);
  Profile profile = random_profile(random, 5);
  profile.source = "a \"test\"";
  profile.device = "cpu";
  profile.frames = 3;
  profile.thread_speedup = {1, 1.75};
  profile.hand_offs = {{"cpu-cpu", {{1000, 0.25}, {2e6, 1.5}}}};
  profile.modules[1].forward.spread = 0.125;
  profile.modules[2].tensor_ways = 4;
  profile.modules[2].tensor_bytes = 17;
  profile.modules[2].tensor_gradient_bytes = 0;
  profile.modules[2].parts = {{2, {1, 2, 0.5, 0.25}}, {4, {0.5, 1, 0.25, 0}}};
  return profile;
}

TEST(ProfileJson, ComesBackToTheBit) {
  EXPECT_EQ(profile_from_json(profile_to_json(sample()), "f"), sample());
}

/// The error for the written text with the first `from` replaced by `to`.
std::string complaint_about(const std::string& from, const std::string& to) {
  std::string text = profile_to_json(sample());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return complaint<ProfileError>([&] { profile_from_json(text, "p.json"); });
}

TEST(ProfileJson, NamesModuleAndFieldOfWhatIsWrong) {
  const char* const cases[][3] = {
      {"\"forward_ms\"", "\"forwards\"", "module 0 (m0): unknown field \"forwards\""},
      {"\"forward_ms\"", "\"update_ms\"", "module 0 (m0): forward_ms is missing"},
      {"\"weight_bytes\":", "\"weight_bytes\":\"x\",\"state_bytes\":",
       "module 0 (m0): weight_bytes is not a number"},
      {"\"weight_bytes\":", "\"weight_bytes\":-1,\"state_bytes\":",
       "module 0 (m0): weight_bytes is negative"},
      {"\"update_ms\":[", "\"update_ms\":[1,", "module 0 (m0): update_ms is not [median, spread]"},
      {"\"tensor_ways\":1", "\"tensor_ways\":0.5", "module 0 (m0): tensor_ways is no count"},
      {"[[2,1.0", "[[1,1.0", "module 2 (m2): tensor_ms is no list of [parts, ms, ms, ms, ms]"},
      {"\"name\":\"m0\"", "\"nome\":\"m0\"", "module 0: name is missing"},
      {"\"millrace_profile\": 1", "\"millrace_profile\": 2",
       "millrace_profile is not 1: no profile, or a later one"},
      {"\"modules\": [", "\"modules\": 7, \"x\": [", "unknown field \"x\""}};
  for (const auto& [from, to, why] : cases)
    EXPECT_EQ(complaint_about(from, to), std::string("p.json: ") + why);
  EXPECT_EQ(complaint_about("{", "").substr(0, 21), "p.json: is no JSON: [");
  EXPECT_EQ(complaint_about("\"update_ms\":", "\"update_ms\":3,\"weight_gradient_ms\":"),
            "");  // a bare number is a median
}

TEST(Settled, NeedsRepeatsThatAgree) {
  EXPECT_FALSE(settled({1, 1, 1, 1}, 0.05)) << "too few to say";
  EXPECT_TRUE(settled({1, 1, 1, 1, 1}, 0.05));
  std::vector<double> wild;
  for (int n = 0; n < 20; ++n) wild.push_back(n % 2 ? 1 : 3);
  EXPECT_FALSE(settled(wild, 0.05));
  EXPECT_TRUE(settled(wild, 1.0));
  std::vector<double> repeats;
  for (int n = 0; n < 20; ++n) repeats.push_back(1 + 0.1 * (n % 5 - 2));
  EXPECT_FALSE(settled(repeats, 0.05));
  for (int n = 0; n < 80; ++n) repeats.push_back(1 + 0.1 * (n % 5 - 2));
  EXPECT_TRUE(settled(repeats, 0.05)) << "more repeats know more";
}

}  // namespace
}  // namespace millrace::engine::plan
