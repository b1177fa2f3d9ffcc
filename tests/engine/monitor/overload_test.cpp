#include "engine/monitor/overload.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/io/test_folder.h"

namespace millrace::engine {
namespace {

using Kind = Change::Kind;

Load load_of(std::vector<double> stage, double budget = 10, double frame = 0) {
  return {.stage = std::move(stage), .frame = frame, .budget = budget};
}

/// The changes after `loads` consecutive loads equal to `load`.
std::vector<Kind> kinds(Overload& overload, const Load& load, int loads) {
  std::vector<Kind> seen;
  for (int i = 0; i < loads; ++i) {
    const Kind kind = overload.judge(load).kind;
    if (kind != Kind::none) seen.push_back(kind);
  }
  return seen;
}

/// The change after the third equal load: one or two cause none.
Change third(Overload& overload, const Load& load) {
  overload.judge(load);
  overload.judge(load);
  return overload.judge(load);
}

TEST(Overload, NeitherAHiccupNorTheStartIsAVerdictNorAnythingWithoutARate) {
  Overload hiccups({.policy = Policy::skip}), start({}), rateless({.policy = Policy::skip});
  for (int i = 0; i < 100; ++i)
    EXPECT_EQ(hiccups.judge(load_of({5, i % 2 ? 40.0 : 9.0})).kind, Kind::none);
  for (const Kind kind : {Kind::none, Kind::none, Kind::late})  // it warms up
    EXPECT_EQ(start.judge(load_of({50})).kind, kind);
  EXPECT_TRUE(kinds(rateless, load_of({1000}, 0), 20).empty());
}

TEST(Drop, SaysThatItIsLateOnceAndThatItIsOver) {
  Overload overload({});
  EXPECT_EQ(kinds(overload, load_of({5, 20}), 20), std::vector<Kind>{Kind::late});
  EXPECT_TRUE(overload.late());
  EXPECT_TRUE(kinds(overload, load_of({5, 9.5}), 20).empty()) << "no clear room";
  EXPECT_EQ(kinds(overload, load_of({5, 8}), 20), std::vector<Kind>{Kind::in_time});
  EXPECT_FALSE(overload.late());
}

/// A stage that takes `forward` per frame, and `more` if it trains on it.
struct Stage {
  double forward, more;
  double at(std::int64_t every) const { return forward + more / double(every); }
};

std::int64_t settled(Overload& overload, const Stage& stage, int loads) {
  for (int i = 0; i < loads; ++i) overload.judge(load_of({1, stage.at(overload.train_every())}));
  return overload.train_every();
}

TEST(Skip, FindsTheLeastThatIsEnoughAndStaysThere) {
  for (const Stage& stage : {Stage{4, 16}, Stage{1, 39}, Stage{6, 6}, Stage{2, 9}, Stage{9, 20}}) {
    Overload overload({.policy = Policy::skip});
    const std::int64_t every = settled(overload, stage, 100);
    EXPECT_LE(stage.at(every), 10);
    EXPECT_GT(stage.at(every - 1), 10) << "one fewer would have done";
    for (int i = 0; i < 200; ++i)
      ASSERT_EQ(overload.judge(load_of({1, stage.at(every)})).kind, Kind::none) << "it flaps";
  }
}

TEST(Skip, GivesWayWhenThereIsRoom) {
  Overload overload({.policy = Policy::skip});
  for (const auto& [stage, every] : {std::pair(Stage{4, 16}, 3), {Stage{1, 2}, 1}, {{4, 16}, 3}})
    EXPECT_EQ(settled(overload, stage, 100), every);
}

TEST(Skip, NeverComesBackToWhatWasTooSlow) {
  // At every cost and its split: once it has relaxed, it stays so.
  for (double forward = 0.5; forward < 10; forward += 0.5) {
    for (double more = 0; more < 60; more += 1.5) {
      Overload overload({.policy = Policy::skip});
      settled(overload, {9, 100}, 60);
      const Stage stage{forward, more};
      settled(overload, stage, 300);
      const std::int64_t every = overload.train_every();
      for (int i = 0; i < 60; ++i) overload.judge(load_of({stage.at(overload.train_every())}));
      EXPECT_EQ(overload.train_every(), every) << forward << " + " << more;
    }
  }
}

TEST(Skip, SaysSoWhenPredictionAloneIsTooSlowAndLooksAtWholeRounds) {
  Overload overload({.policy = Policy::skip});
  EXPECT_GE(overload.window(), 32);
  const std::vector<Kind> seen = kinds(overload, load_of({30}), 100);
  EXPECT_EQ(overload.train_every(), Overload::kMostEvery);
  EXPECT_GE(overload.window(), 3 * Overload::kMostEvery);
  EXPECT_EQ(seen.back(), Kind::late);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), Kind::late), 1);
}

TEST(Skip, ALoadThatSawAChangeIsNotJudged) {
  Overload overload({.policy = Policy::skip});
  EXPECT_EQ(third(overload, load_of({20})).train_every, 2);
  EXPECT_EQ(overload.judge(load_of({20})).kind, Kind::none);  // partly before the change
  EXPECT_TRUE(kinds(overload, load_of({9}), 10).empty());
}

TEST(Recut, MovesModulesFromTheSlowestStage) {
  // Eight equal modules; the second stage's core is slower than it was.
  Overload overload(
      {.policy = Policy::recut, .module_ms = std::vector<double>(8, 1.0), .cut = {3}});
  const Change change = third(overload, load_of({3, 15}));
  EXPECT_EQ(change.kind, Kind::recut);
  EXPECT_EQ(change.from_cut, std::vector<int>{3});
  EXPECT_EQ(change.cut, std::vector<int>{5});
  EXPECT_EQ(overload.cut(), std::vector<int>{5});
}

TEST(Recut, NeedsAClearGainAndACutThatMayBe) {
  // {5}, {1, 5}: 12 ms now; 10.9 at best.
  Overload little({.policy = Policy::recut, .module_ms = {5, 1, 5}, .cut = {1}});
  EXPECT_EQ(kinds(little, load_of({11, 12}), 30), std::vector<Kind>{Kind::late});
  EXPECT_EQ(little.cut(), std::vector<int>{1});
  Overload forbidden({.policy = Policy::recut,
                      .module_ms = std::vector<double>(8, 1.0),
                      .cut = {3},
                      .allowed = [](const std::vector<int>&) { return false; }});
  EXPECT_EQ(kinds(forbidden, load_of({3, 15}), 30), std::vector<Kind>{Kind::late});
}

TEST(Recut, DoesSoLessAndLessOften) {
  // Every move makes the stage with more modules slower than the other.
  Overload overload(
      {.policy = Policy::recut, .module_ms = std::vector<double>(8, 1.0), .cut = {4}});
  std::vector<int> at;
  for (int i = 0; i < 1000; ++i) {
    const bool second = overload.cut()[0] <= 4;
    if (overload.judge(load_of(second ? std::vector<double>{5, 50} : std::vector<double>{50, 5}))
            .kind == Kind::recut)
      at.push_back(i);
  }
  ASSERT_GE(at.size(), 2u);
  EXPECT_LE(at.size(), 8u);
  for (std::size_t i = 2; i < at.size(); ++i) EXPECT_GE(at[i] - at[i - 1], at[i - 1] - at[i - 2]);
}

TEST(Recut, AStageOfFreeModulesSharesWhatItTook) {
  Overload overload({.policy = Policy::recut, .module_ms = {0, 0, 0, 0}, .cut = {3}});
  EXPECT_EQ(third(overload, load_of({30, 1})).cut, std::vector<int>{2});
}

TEST(Load, IsTheMeanOfAStretchOverReplicas) {
  const Totals before{.stages = {{.replicas = 1, .steps = 10, .busy_ns = 1'000'000},
                                 {.replicas = 2, .steps = 10, .busy_ns = 2'000'000}},
                      .frames = 10,
                      .frames_ns = 5'000'000};
  const Totals after{.stages = {{.replicas = 1, .steps = 60, .busy_ns = 101'000'000},
                                {.replicas = 2, .steps = 58, .busy_ns = 194'000'000}},
                     .frames = 61,
                     .frames_ns = 158'000'000};
  EXPECT_EQ(frames_between(before, after), 48);
  const Load load = load_between(before, after, 40);
  EXPECT_DOUBLE_EQ(load.stage[0], 2.0);
  EXPECT_DOUBLE_EQ(load.stage[1], 2.0);  // 4 ms, of every second frame
  EXPECT_DOUBLE_EQ(load.frame, 3.0);
  EXPECT_DOUBLE_EQ(load.took(), 3.0);
  EXPECT_DOUBLE_EQ(load.budget, 40.0);
}

TEST(Change, NamesNoStageWhereNoneIsTooSlowAlone) {
  Overload overload({});
  // Sequential stages: their times add up.
  EXPECT_EQ(text(third(overload, load_of({8, 8}, 10, 16))), "late: a frame took 16 ms of 10 ms");
}

TEST(Overload, ASlowPipelineIsJudgedByFewFramesInsteadOfLate) {
  const Overload overload({});
  EXPECT_TRUE(overload.enough(overload.window(), 0.01));
  EXPECT_FALSE(overload.enough(20, 0.5)) << "a fast one gathers more";
  EXPECT_TRUE(overload.enough(10, 0.7));
  EXPECT_FALSE(overload.enough(5, 60)) << "a hiccup would decide";
}

/// A /sys of a board whose cores run at `now` of `most` kHz.
struct Board {
  const io::TestFolder folder;
  const std::filesystem::path sys = folder.path();
  void put(const std::string& file, int number) const {
    std::filesystem::create_directories((sys / file).parent_path());
    std::ofstream(sys / file) << number << "\n";
  }
  void core(int index, int now, int most) const {
    const std::string folder = "devices/system/cpu/cpu" + std::to_string(index) + "/cpufreq/";
    put(folder + "scaling_cur_freq", now);
    put(folder + "cpuinfo_max_freq", most);
  }
};

TEST(CoreClock, IsSlowWhenTheFastestCoreIs) {
  const Board board;
  EXPECT_EQ(slow_clock(board.sys), "") << "where Linux says nothing";
  board.put("devices/system/cpu/cpu0/online", 1);
  EXPECT_EQ(slow_clock(board.sys), "");
  board.core(0, 600000, 2400000);
  board.core(1, 1500000, 2400000);
  EXPECT_EQ(slow_clock(board.sys), "cores run at 1500 of 2400 MHz");
  board.put("class/thermal/thermal_zone0/temp", 61000);
  board.put("class/thermal/thermal_zone1/temp", 84200);
  EXPECT_EQ(slow_clock(board.sys), "cores run at 1500 of 2400 MHz, 84 C");
  board.core(1, 1800000, 1800000);  // a little one, at its most
  EXPECT_EQ(slow_clock(board.sys), "");
}

}  // namespace
}  // namespace millrace::engine
