#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "engine/plan/plan.h"
#include "engine/schedule/registry.h"
#include "tests/complaint.h"
#include "tests/engine/plan/random_profile.h"
#include "tests/engine/simulate/costs.h"

namespace millrace::engine {
namespace {

TEST(Simulation, KeepsWhatAPlanSays) {
  std::mt19937 random(7);
  plan::Request request;
  request.microbatches = {8};
  request.recompute = true;
  request.machine.levels.front().count = 4;
  request.schedules = schedule_names();
  for (int round = 0; round < 10; ++round) {
    const plan::Profile profile = plan::random_profile(random, 11);
    const plan::Planned planned = plan::make_plan(profile, request);
    ASSERT_EQ(planned.ranked.size(), 2 * schedule_names().size());
    for (const plan::Plan& made : planned.ranked) {
      std::vector<int> cut;
      for (const plan::Stage& stage : made.cut.stages) cut.push_back(stage.begin);
      cut.erase(cut.begin());
      const plan::Method& method = made.method;
      const Schedule schedule =
          make_schedule(method.schedule, {.stages = int(cut.size()) + 1,
                                          .microbatches = method.microbatches,
                                          .virtual_stages = method.virtual_stages,
                                          .recompute = method.recompute});
      const Simulation s = simulate(schedule, {.samples = 64,
                                               .stages = plan::stage_costs(profile, cut),
                                               .input_bytes = profile.input_bytes});
      ASSERT_EQ(s.workers.size(), made.outcome.memory.size());
      for (std::size_t worker = 0; worker < s.workers.size(); ++worker) {
        EXPECT_NEAR(s.workers[worker].peak_bytes, made.outcome.memory[worker].total(), 1e-6)
            << method.schedule << (method.recompute ? ", recomputing" : "") << worker;
      }
    }
  }
}

TEST(Simulation, RecomputingKeepsInputs) {
  const Schedule schedule =
      make_schedule("gpipe", {.stages = 2, .microbatches = 8, .recompute = true});
  std::vector<plan::StageCosts> costs = equal_costs(2, {1, 1, 1, 0});
  for (auto& stage : costs) stage.bytes = {.activation = 5, .stash = 70};
  const Simulation s = simulate(schedule, {.samples = 8, .stages = costs, .input_bytes = 3});
  EXPECT_EQ(s.memory[0].stash, 8 * 3 + 70);
  EXPECT_EQ(s.memory[1].stash, 8 * 5 + 70);
  const Simulation longer = simulate(schedule, {.samples = 24, .stages = costs, .input_bytes = 3});
  EXPECT_EQ(longer.memory[0].stash, s.memory[0].stash);  // all of it is freed in between
  // One forward longer, except for stage 0's first, which runs while it waits for a gradient.
  EXPECT_NEAR(s.total_ms, (8 + 1) * 4 - 1, 1e-12);
}

TEST(Simulation, TakesTheNewestFrameOfALiveSource) {
  const auto costs = equal_costs(1, {10, 0, 15, 0});
  const Schedule schedule = make_schedule("sequential", {.stages = 1});
  const Simulation s =
      simulate(schedule, {.samples = 4, .stages = costs, .source_period_ms = 10, .events = true});
  // Frames at 0, 10, ...; requested at 0, 25, 50, 75: taken 0, 2, 5, 7; lost 1, 3, 4, 6.
  EXPECT_EQ(s.dropped, 4);
  EXPECT_EQ(s.period_ms, 25);
  EXPECT_EQ(s.latency_max_ms, 15);  // frame 2 waited for 5
  EXPECT_EQ(s.latency_p50_ms, 10);
}

TEST(Simulation, LosesAllButOneFrameOfAFastSource) {
  const auto costs = equal_costs(1, {10, 0, 15, 0});
  const Schedule schedule = make_schedule("sequential", {.stages = 1});
  for (const double period : {0.1, 0.3, 0.7, 1e-3}) {  // most of them have no exact quotient
    const Simulation s =
        simulate(schedule, {.samples = 401, .stages = costs, .source_period_ms = period});
    // Frame k is the last one with k * period <= 25 * 400.
    EXPECT_NEAR(double(s.dropped + 400) * period, 25 * 400, period) << period;
    EXPECT_LT(s.latency_max_ms, 10 + 1.0001 * period);
    EXPECT_GE(s.latency_p50_ms, 10 - 1e-9);
  }
}

TEST(Simulation, WaitsForALiveSource) {
  const auto costs = equal_costs(3, {1, 1, 1, 0});
  for (const std::string& name : schedule_names()) {
    if (name == "interleaved") continue;
    const Schedule schedule = make_schedule(name, {.stages = 3});
    const Simulation s =
        simulate(schedule, {.samples = 80, .stages = costs, .source_period_ms = 40});
    EXPECT_NEAR(s.period_ms, 40, 1e-9) << name;
    EXPECT_EQ(s.dropped, 0) << name;
    EXPECT_LT(s.latency_max_ms, 40) << name;
  }
}

TEST(Simulation, LeavesOutATrailingMinibatch) {
  const Simulation s = simulate(make_schedule("1f1b", {.stages = 2, .microbatches = 4}),
                                {.samples = 11, .stages = equal_costs(2, {1, 1, 1, 0})});
  EXPECT_EQ(s.samples, 8);
}

TEST(Simulation, SpansAreNanosecondsOfComputing) {
  std::vector<plan::StageCosts> costs = equal_costs(2, {1.5, 1, 1, 0});
  SimulationInput input = {.samples = 1, .stages = costs, .events = true};
  input.machine.levels.front().link.latency_ms = 0.25;
  const std::vector<Span> spans =
      spans_of(simulate(make_schedule("sequential", {.stages = 2}), input));
  ASSERT_EQ(spans.size(), 6u);
  EXPECT_EQ(spans[0].end_ns - spans[0].start_ns, 1'500'000);
  EXPECT_EQ(spans[1].worker, 1);
  EXPECT_EQ(spans[1].start_ns, 2'000'000);  // sent and received
}

TEST(Simulation, RefusesWhatMakesNoSense) {
  const Schedule schedule = make_schedule("gpipe", {.stages = 2, .microbatches = 4});
  const SimulationInput good{.samples = 8, .stages = equal_costs(2, {1, 1, 1, 0})};
  EXPECT_NO_THROW(simulate(schedule, good));
  const auto refuses = [&](const auto& spoil) {
    SimulationInput bad = good;
    spoil(bad);
    EXPECT_THROW(simulate(schedule, bad), std::invalid_argument);
  };
  refuses([](auto& i) { i.stages.pop_back(); });
  refuses([](auto& i) { i.stages[1].ms.forward = -1; });
  refuses([](auto& i) { i.stages[1].bytes.stash = std::nan(""); });
  refuses([](auto& i) { i.samples = 0; });
  refuses([](auto& i) { i.samples = 3; });
  refuses([](auto& i) { i.cores = -1; });
  refuses([](auto& i) { i.contention = 0; });
  refuses([](auto& i) { i.overhead_ms = -1; });
  refuses([](auto& i) { i.source_period_ms = -1; });
  refuses([](auto& i) { i.machine.levels.clear(); });
  refuses([](auto& i) { i.machine.levels = {{1, {}}, {1, {}}}; });
  refuses([](auto& i) { i.machine.levels[0].link.latency_ms = -1; });
}

TEST(Simulation, FindsADeadlockAndAMessageOutOfOrder) {
  const auto fault = [](Schedule schedule, std::size_t worker) {
    std::swap(schedule.workers[worker].period[0], schedule.workers[worker].period[1]);
    return complaint<std::logic_error>([&] {
      simulate(schedule, {.samples = 2, .stages = equal_costs(2, {1, 1, 1, 0})});
    });
  };
  EXPECT_EQ(fault(make_schedule("sequential", {.stages = 2}), 0),
            "schedule sequential deadlocks: worker 0 waits before 0B0");
  EXPECT_EQ(fault(make_schedule("gpipe", {.stages = 2, .microbatches = 2}), 1),
            "receives what belongs to sample 0");
}

}  // namespace
}  // namespace millrace::engine
