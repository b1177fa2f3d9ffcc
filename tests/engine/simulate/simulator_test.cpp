#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>

#include "engine/plan/plan.h"
#include "engine/schedule/registry.h"
#include "engine/simulate/simulator.h"
#include "engine/simulate/timeline.h"
#include "tests/complaint.h"
#include "tests/engine/plan/random_profile.h"

namespace millrace::engine {
namespace {

std::vector<plan::StageCosts> equal_costs(int stages, plan::StepCosts ms) {
  return std::vector<plan::StageCosts>(stages, plan::StageCosts{ms});
}

std::vector<plan::StageCosts> random_costs(int stages, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> ms(0.1, 2.0);
  std::vector<plan::StageCosts> costs(stages);
  for (auto& stage : costs) stage.ms = {ms(random), ms(random), ms(random), ms(random) / 8};
  return costs;
}

/// The slowest stage's work on a sample.
double slowest(const std::vector<plan::StageCosts>& costs) {
  double most = 0;
  for (const auto& stage : costs) most = std::max(most, stage.ms.total());
  return most;
}

SimulationInput with_events(std::vector<plan::StageCosts> costs, std::int64_t samples) {
  return {.samples = samples, .stages = std::move(costs), .events = true};
}

/// Without replicas, whose meetings have a test of their own.
std::vector<Schedule> all_schedules() {
  std::vector<Schedule> list;
  for (const std::string& name : schedule_names()) {
    for (const int stages : {1, 2, 4, 6}) {
      if (name == "interleaved" && stages % 2 != 0) continue;
      for (const bool recompute : {false, true}) {
        if (recompute && !schedule_entry(name).recomputes) continue;
        list.push_back(
            make_schedule(name, {.stages = stages, .microbatches = 6, .recompute = recompute}));
      }
    }
  }
  list.push_back(make_schedule("pipedream", {.stages = 4, .vertical_sync = true}));
  return list;
}

/// End of each action on a sample; for updates, the worker's last one.
using Times = std::map<std::tuple<Op, int, std::int64_t>, double>;

TEST(Simulator, StartsEachActionAsSoonAsItsNeedsAreMet) {
  for (const Schedule& schedule : all_schedules()) {
    const Simulation simulation =
        simulate(schedule, with_events(random_costs(schedule.stages, 5), 18));
    const std::vector<std::int64_t> first = first_backwards(schedule);
    const std::vector<StageNeeds> of = stage_needs(schedule);
    Times ends;
    std::vector<double> free(schedule.workers.size(), 0.0);
    for (const SimulatedAction& event : simulation.events) {  // needed actions come first
      const Action& a = event.action;
      double needs = free[event.worker];
      if (a.op == Op::forward && a.stage > 0)
        needs = std::max(needs, ends.at({Op::forward, a.stage - 1, a.sample}));
      if (a.op == Op::forward && a.stage == 0 && a.sample >= schedule.in_flight) {
        for (int stage = 0; stage < schedule.stages; ++stage) {
          const std::int64_t before = a.sample - schedule.in_flight;
          const Op last = before < first[stage] ? Op::forward
                          : of[stage].split     ? Op::backward_weight
                                                : Op::backward;
          needs = std::max(needs, ends.at({last, stage, before}));
        }
      }
      if (takes_gradient(a.op) && a.stage + 1 < schedule.stages) {
        const Op op = of[a.stage + 1].split ? Op::backward_input : Op::backward;
        needs = std::max(needs, ends.at({op, a.stage + 1, a.gradient}));
      }
      EXPECT_EQ(event.start_ms, needs) << schedule.name << schedule.stages << action_text(a, true);
      free[event.worker] = ends[{a.op, a.stage, a.sample}] = event.end_ms();
    }
  }
}

TEST(Simulator, BubblesAreThePapersFormulas) {
  const plan::StepCosts ms{.forward = 1, .input_gradient = 1, .weight_gradient = 1};
  for (const int p : {1, 2, 4, 8}) {
    for (const int m : {p, 2 * p, 4 * p}) {
      const double work = m * ms.total();
      for (const char* name : {"gpipe", "1f1b"}) {
        const Simulation s = simulate(make_schedule(name, {.stages = p, .microbatches = m}),
                                      {.samples = m, .stages = equal_costs(p, ms)});
        EXPECT_NEAR(s.bubble(), double(p - 1) / (m + p - 1), 1e-12) << name << p << " " << m;
        EXPECT_NEAR(s.total_ms / work - 1, double(p - 1) / m, 1e-12) << name << p << " " << m;
      }
      for (const int v : {2, 3}) {
        const Simulation s = simulate(
            make_schedule("interleaved", {.stages = p * v, .microbatches = m, .virtual_stages = v}),
            {.samples = m, .stages = equal_costs(p * v, ms)});
        EXPECT_NEAR(s.total_ms / (v * work) - 1, double(p - 1) / (v * m), 1e-12)
            << p << " x " << v << ", " << m;
      }
    }
  }
}

TEST(Simulator, BubbleOfZeroBubbleIsItsPapersFormula) {
  // (p-1)(T_F + T_I - T_W) where T_W is no longer than T_F and T_I (Qi et al., table 2).
  for (const plan::StepCosts ms : {plan::StepCosts{1, 1, 1}, {2, 2, 1}, {4, 5, 3}}) {
    for (const int p : {1, 2, 4, 8}) {
      for (const int m : {2 * p, 4 * p}) {
        const Simulation s = simulate(make_schedule("zb-h1", {.stages = p, .microbatches = m}),
                                      {.samples = m, .stages = equal_costs(p, ms)});
        EXPECT_NEAR(s.total_ms - m * ms.total(),
                    (p - 1) * (ms.forward + ms.input_gradient - ms.weight_gradient), 1e-9)
            << p << " stages, " << m << ", T_W " << ms.weight_gradient;
      }
    }
  }
}

TEST(Simulator, PeriodWithoutAFlushIsTheSlowestStages) {
  for (const char* name : {"partime", "pb", "pipedream"}) {
    for (unsigned seed = 0; seed < 16; ++seed) {
      const int stages = 1 + int(seed % 8);
      const auto costs = random_costs(stages, seed);
      const Schedule schedule = make_schedule(name, {.stages = stages});
      // Enough for a stage half a per cent faster than the slowest to settle.
      const Simulation s = simulate(schedule, {.samples = 8000, .stages = costs});
      EXPECT_TRUE(s.settled);
      EXPECT_NEAR(s.period_ms, slowest(costs), 1e-9) << name << ", seed " << seed;
      EXPECT_NEAR(s.fps(), 1e3 / slowest(costs), 1e-6);
      EXPECT_NEAR(predict(schedule, costs) / slowest(costs), 1, 0.01) << name << seed;
    }
  }
}

TEST(Simulator, FillingAndDrainingDoNotCount) {
  const plan::StepCosts ms{1, 1, 1, 0};
  const Simulation s = simulate(make_schedule("gpipe", {.stages = 4, .microbatches = 4}),
                                {.samples = 40, .stages = equal_costs(4, ms)});
  // Instead of 4 + 3 steps each, minibatches follow each other with 3 (p-1) of the backwards' drain
  // beside the next one's fill, as far as dependencies allow: the distance of last predictions.
  const Simulation longer = simulate(make_schedule("gpipe", {.stages = 4, .microbatches = 4}),
                                     {.samples = 80, .stages = equal_costs(4, ms)});
  EXPECT_NEAR(s.period_ms, longer.period_ms, 1e-12);
  EXPECT_NEAR(s.period_ms, (longer.total_ms - s.total_ms) / 40, 1e-12);
}

TEST(Simulator, ReplicasAdmitAndPredictInOrder) {
  for (const std::vector<int>& replicas : {std::vector<int>{3, 1}, {1, 3}, {2, 3}, {3, 2}}) {
    Schedule schedule = make_schedule("pipedream", {.stages = 2, .replicas = replicas});
    std::reverse(schedule.workers.begin(), schedule.workers.end());  // last worker first
    for (unsigned seed = 0; seed < 6; ++seed) {
      SimulationInput input = with_events(random_costs(2, seed), 60);
      input.cores = 1 + int(seed % 3);  // so that workers come late
      const Simulation s = simulate(schedule, input);
      std::int64_t admitted = 0;
      double predicted = 0;  // end of all samples so far
      std::map<std::int64_t, SimulatedAction> last;
      for (const SimulatedAction& event : s.events) {
        if (event.action.op != Op::forward) continue;
        if (event.action.stage == 1) last[event.action.sample] = event;
        if (event.action.stage == 0) {
          EXPECT_EQ(event.action.sample, admitted++);
        }
      }
      for (const auto& [sample, forward] : last) {
        predicted = std::max(predicted, forward.end_ms());
        for (const SimulatedAction& event : s.events) {
          if (event.worker != forward.worker || event.start_ms <= forward.start_ms) continue;
          EXPECT_GE(event.start_ms, predicted) << action_text(event.action, true);
        }
      }
    }
  }
}

TEST(Simulator, ReplicasMeetForTheirAllReduce) {
  std::vector<plan::StageCosts> costs = {{{1, 0, 1, 0}}, {{0.1, 0.1, 0.1, 0}}};
  costs[0].bytes.weight = 1000;
  const Schedule schedule = make_schedule("pipedream", {.stages = 2, .replicas = {2, 1}});
  SimulationInput input{.samples = 240, .stages = costs};
  input.machine.levels.front().link.bytes_per_ms = 2000;
  // Two pieces of 500 bytes at 2000 a millisecond, once for two samples.
  EXPECT_NEAR(simulate(schedule, input).period_ms, (2 + 0.5) / 2, 1e-9);
  input.machine.overlap = plan::Overlap::all;
  EXPECT_NEAR(simulate(schedule, input).period_ms, 2.0 / 2, 1e-9);
  input.machine.levels.front().link.bytes_per_ms = 250;  // the all-reduce is the slowest: 4 ms
  EXPECT_NEAR(simulate(schedule, input).period_ms, 4.0 / 2, 1e-9);
}

/// Three stages whose activations take 0.2 ms and whose gradients 0.3.
SimulationInput over_a_link() {
  SimulationInput input{.samples = 100, .stages = equal_costs(3, {1, 1, 1, 0})};
  for (auto& stage : input.stages) stage.bytes = {.activation = 100, .gradient = 200};
  input.machine.levels.front().link = {.latency_ms = 0.1, .bytes_per_ms = 1000};
  return input;
}

TEST(Simulator, AHandOffCostsBothSides) {
  SimulationInput input = over_a_link();
  const Simulation s = simulate(make_schedule("partime", {.stages = 3}), input);
  // The middle stage receives and sends an activation and a gradient: twice 0.2 and twice 0.3.
  EXPECT_NEAR(s.period_ms, 3 + 2 * 0.2 + 2 * 0.3, 1e-9);
  EXPECT_NEAR(s.handoff_share(1) / s.compute_share(1), 1.0 / 3, 0.01);  // it begins without
  input.samples = 1;
  EXPECT_NEAR(simulate(make_schedule("sequential", {.stages = 3}), input).latency_max_ms,
              3 + 4 * 0.2, 1e-12);
}

TEST(Simulator, ALinkRunsBesideTheWork) {
  SimulationInput input = over_a_link();
  input.machine.overlap = plan::Overlap::transfers;
  const Schedule partime = make_schedule("partime", {.stages = 3});
  EXPECT_NEAR(simulate(partime, input).period_ms, 3, 1e-9);
  EXPECT_EQ(simulate(partime, input).workers[1].handoff_ms, 0);
  input.samples = 1;
  EXPECT_NEAR(simulate(make_schedule("sequential", {.stages = 3}), input).latency_max_ms,
              3 + 2 * 0.2, 1e-12);
  // Too slow a link is the bottleneck, by its slower direction: messages queue for it.
  input.samples = 400;
  input.machine.levels.front().link = {.latency_ms = 0, .bytes_per_ms = 50};
  EXPECT_NEAR(simulate(make_schedule("pipedream", {.stages = 2}),
                       {.samples = 400,
                        .stages = {{{0.1, 0, 0.1, 0}, {.activation = 10, .gradient = 400}}, {}},
                        .machine = input.machine})
                  .period_ms,
              8, 1e-9);
}

TEST(Simulator, ADelayCostsLatencyAndNoTimeOfTheLink) {
  for (const plan::Overlap overlap : {plan::Overlap::none, plan::Overlap::transfers}) {
    SimulationInput input{.samples = 1, .stages = equal_costs(3, {1, 1, 1, 0}), .delay_ms = 5};
    input.machine.overlap = overlap;
    EXPECT_NEAR(simulate(make_schedule("sequential", {.stages = 3}), input).latency_max_ms,
                3 + 2 * 5, 1e-12);
    // A flush waits for it twice, with any number of messages in flight.
    input.stages.pop_back();
    input.samples = 8;
    EXPECT_NEAR(simulate(make_schedule("gpipe", {.stages = 2, .microbatches = 8}), input).total_ms,
                (8 + 1) * 3 + 2 * 5, 1e-12);
  }
}

TEST(Simulator, WorkersShareCoresAndStayOnTheirs) {
  auto costs = equal_costs(4, {1, 1, 1, 0.5});
  const Schedule partime = make_schedule("partime", {.stages = 4});
  const auto period = [&](int cores) {
    return simulate(partime, {.samples = 400, .stages = costs, .cores = cores}).period_ms;
  };
  EXPECT_NEAR(period(0), 3.5, 1e-9);
  EXPECT_NEAR(period(4), 3.5, 1e-9);
  EXPECT_NEAR(period(2), 7, 0.05);
  EXPECT_NEAR(period(1), 14, 1e-9);
  costs = equal_costs(4, {1, 1, 1, 0});
  costs[1].ms.forward = costs[3].ms.forward = 3;  // dealt to the second core, both of them
  EXPECT_NEAR(period(2), 2 * 5, 0.05) << "though the other is free";
}

TEST(Simulator, OverheadAndContentionAreOfEveryAction) {
  const auto costs = equal_costs(2, {1, 1, 1, 0.5});
  const Simulation s =
      simulate(make_schedule("partime", {.stages = 2}),
               {.samples = 100, .stages = costs, .overhead_ms = 0.25, .contention = 1.5});
  EXPECT_NEAR(s.period_ms, 1.5 * 3.5 + 3 * 0.25, 1e-9);  // forward, backward, update
}

TEST(Simulation, KeepsWhatAPlanSays) {
  std::mt19937 random(7);
  plan::Request request;
  request.microbatches = {8};
  request.recompute = true;
  request.machine.levels.front().count = 4;
  request.schedules = schedule_names();
  for (int round = 0; round < 10; ++round) {
    const plan::Profile profile = plan::random_profile(random, 11);
    const std::vector<plan::Plan> plans = plan::make_plans(profile, request);
    const auto recomputing = std::ranges::count_if(schedule_table(), &ScheduleEntry::recomputes);
    ASSERT_EQ(plans.size(), schedule_names().size() + std::size_t(recomputing));
    for (const plan::Plan& made : plans) {
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

Simulation simulated(const Schedule& schedule, std::int64_t samples, double handoff_ms = 0) {
  SimulationInput input{
      .samples = samples,
      .stages = std::vector<plan::StageCosts>(schedule.stages, {{1, 0.5, 0.5, 0}}),
      .events = true};
  input.machine.levels.front().link.latency_ms = handoff_ms;
  return simulate(schedule, input);
}

int count(const std::string& text, const std::string& part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST(TimelineSvg, HasABoxAnActionAndNamesThem) {
  const Schedule schedule = make_schedule("gpipe", {.stages = 2, .microbatches = 2});
  const std::string svg = timeline_svg(schedule, simulated(schedule, 2));
  // A box each and one in the legend; updates take no time and are as thin as can be.
  EXPECT_EQ(count(svg, "class=\"F\""), 4 + 1);
  EXPECT_EQ(count(svg, "class=\"B\""), 4 + 1);
  EXPECT_EQ(count(svg, "class=\"U\""), 2 + 1);
  EXPECT_EQ(count(svg, "class=\"H\""), 0);
  EXPECT_EQ(count(svg, ">F1<"), 2);
  EXPECT_EQ(count(svg, ">66.7 %<"), 2);
  EXPECT_NE(svg.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_EQ(count(svg, "<svg "), 1);
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
}

TEST(TimelineSvg, SaysWhatItLeavesOut) {
  const Schedule schedule = make_schedule("partime", {.stages = 70});
  const std::string svg = timeline_svg(schedule, simulated(schedule, 300, 0.1));
  EXPECT_NE(svg.find("first 64 of 70 workers, first "), std::string::npos);
  EXPECT_EQ(count(svg, "class=\"F\"") + count(svg, "class=\"B\"") + count(svg, "class=\"U\""),
            20'000 + 3);
  EXPECT_GT(count(svg, "class=\"H\""), 10);
}

TEST(TimelineSvg, EndsWhenItShouldAndItsTitleMayHoldAnything) {
  const Schedule schedule = make_schedule("gpipe", {.stages = 1, .microbatches = 8});
  const std::string svg = timeline_svg(schedule, simulated(schedule, 8), "<a&b>\n\xff", 3.5);
  EXPECT_EQ(count(svg, "class=\"F\""), 4 + 1);
  EXPECT_NE(svg.find("first 3.5 of 16 ms"), std::string::npos);
  EXPECT_NE(svg.find("&lt;a&amp;b&gt;??"), std::string::npos);
}

std::string drawn(const Schedule& schedule, std::int64_t samples) {
  std::string text;
  for (const auto& row : draw_staircase(schedule, samples).rows) {
    for (const auto& cell : row) {
      text += &cell == &row.front() ? "" : " ";
      text += cell ? action_text(cell->action, false) + (cell->updates ? "U" : "") : ".";
    }
    text += '\n';
  }
  return text;
}

TEST(Staircase, HasACellAnActionAndItsUpdate) {
  EXPECT_EQ(drawn(make_schedule("partime", {.stages = 2}), 4),
            "F0 F1 F2 B2(0)U F3 B3(1)U . . .\n"
            ". F0 B0U F1 B1U F2 B2U F3 B3U\n");
  EXPECT_EQ(drawn(make_schedule("pipedream", {.stages = 2, .replicas = {2, 1}}), 4),
            "F0^0 F2^0 . B0U . . . B2U . .\n"
            "F1^0 F3^0 . . . B1U . . . B3U\n"
            ". F0^0 B0U F1^1 B1U F2^2 B2U F3^3 B3U .\n");
  EXPECT_EQ(drawn(make_schedule("gpipe", {.stages = 2, .microbatches = 3}), 2), "\n\n");
}

}  // namespace
}  // namespace millrace::engine
