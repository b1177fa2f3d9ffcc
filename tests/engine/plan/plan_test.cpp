#include "engine/plan/plan.h"

#include <gtest/gtest.h>

#include "engine/schedule/registry.h"
#include "engine/simulate/timeline.h"
#include "tests/complaint.h"
#include "tests/engine/plan/random_profile.h"

namespace millrace::engine::plan {
namespace {

/// `count` equal modules: forward 1 ms, backward 2 ms, no update, no messages, no weights.
Profile equal_modules(int count) {
  Profile profile;
  profile.network = "equal";
  for (int i = 0; i < count; ++i) {
    ModuleProfile module;
    module.name = "m" + std::to_string(i);
    module.forward.median = 1;
    module.weight_gradient.median = 2;
    module.bytes.stash = 100;
    profile.modules.push_back(module);
  }
  return profile;
}

Plan only_plan(const Profile& profile, const Request& request) {
  return make_plan(profile, request).ranked.front();
}

TEST(Plan, HasGPipesBubbleToTheDigit) {
  for (const int p : {2, 4, 8}) {
    for (const int m : {1, 4, 8, 32}) {
      for (const char* schedule : {"gpipe", "1f1b"}) {
        const Plan plan = only_plan(
            equal_modules(16),
            {.machine = {.levels = {{p, {}}}}, .schedules = {schedule}, .microbatches = {m}});
        EXPECT_DOUBLE_EQ(plan.outcome.bubble, double(p - 1) / m);
        EXPECT_DOUBLE_EQ(plan.outcome.sample_ms, 16 * 3.0 / p * (m + p - 1) / m);
        // The staircase has the same bubble, as a share of all time.
        const Schedule drawn = make_schedule(schedule, {.stages = p, .microbatches = m});
        const double bubble = plan.outcome.bubble;
        EXPECT_NEAR(draw_staircase(drawn, m).bubble(), bubble / (1 + bubble), 1e-12);
      }
    }
  }
}

TEST(Plan, HasInterleavedsBubbleToTheDigit) {
  for (const int v : {1, 2, 4}) {
    const Plan plan = only_plan(equal_modules(16), {.machine = {.levels = {{4, {}}}},
                                                    .schedules = {"interleaved"},
                                                    .microbatches = {8},
                                                    .virtual_stages = {v}});
    EXPECT_DOUBLE_EQ(plan.outcome.bubble, 3.0 / (v * 8));
    EXPECT_EQ(int(plan.cut.stages.size()), 4 * v);
  }
}

TEST(Plan, LetsWeightGradientsFillZeroBubblesDrain) {
  // Forward 1, input gradient 1, weight gradient 1 a module: zb-h1 leaves a third of 1f1b's bubble.
  Profile profile = equal_modules(8);
  for (std::size_t i = 0; i < profile.modules.size(); ++i) {
    profile.modules[i].weight_gradient.median = 1;
    profile.modules[i].input_gradient.median = i > 0 ? 1 : 0;
  }
  profile.modules[0].forward.median = 2;
  const auto bubble = [&](const char* schedule) {
    return only_plan(
               profile,
               {.machine = {.levels = {{4, {}}}}, .schedules = {schedule}, .microbatches = {8}})
        .outcome.bubble;
  };
  EXPECT_NEAR(bubble("1f1b"), 3.0 / 8, 1e-12);
  EXPECT_NEAR(bubble("zb-h1"), 1.0 / 8, 1e-12);
}

/// The least time per sample within memory, over every method without a flush and every cut.
double exhaustive(const Profile& profile, const Request& request) {
  double best = std::numeric_limits<double>::infinity();
  const int n = request.machine.devices(), modules = int(profile.modules.size());
  for (const std::string& schedule : request.schedules) {
    for (int recompute = 0; recompute <= int(request.recompute); ++recompute) {
      for (int copies = 1;
           copies <= (schedule_entry(schedule).replicates ? request.most_copies : 1); ++copies) {
        for (int kind = 0; kind < 2 * n / copies && n % copies == 0; ++kind) {
          const int m = schedule_entry(schedule).minibatches ? request.microbatches[0] : 1;
          if (schedule_entry(schedule).minibatches && m % copies != 0) continue;
          const Method method{.schedule = schedule,
                              .microbatches = schedule_entry(schedule).minibatches ? m / copies : 1,
                              .recompute = recompute > 0,
                              .copies = copies,
                              .copies_inside = kind % 2 > 0,
                              .idle = kind / 2};
          const int places = n / copies - method.idle;
          const CostModel model(profile, request.machine, method);
          const Freedom freedom{.replicas =
                                    request.replicas && schedule_entry(schedule).replicates};
          each_plan(modules, places, freedom, [&](const std::vector<Stage>& stages) {
            if (schedule == "2bw" && in_flight(stages, places) > method.microbatches) return;
            if (peak_memory(model, stages) > request.machine.memory_bytes) return;
            best = std::min(best, weigh(model, stages).period_ms / copies);
          });
        }
      }
    }
  }
  return best;
}

TEST(Plan, IsTheBestOfAllMethodsAndCuts) {
  std::mt19937 random(7);
  int fit = 0;
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(trial);
    const Profile profile = random_profile(random, 1 + int(random() % 7));
    double all = 0;
    for (const ModuleProfile& m : profile.modules) all += m.bytes.weight + m.bytes.stash;
    Request request{.machine = {.levels = {{2, {random_cost(random, 20), 50}}, {2, {0.5, 20}}},
                                .memory_bytes = 1 + all * std::uniform_real_distribution<double>(
                                                              0.2, 3)(random),
                                .replay_bytes = random_cost(random, 0.3 * all),
                                .overlap = Overlap(random() % 3)},
                    .schedules = {"partime", "pb", "pipedream", "2bw"},
                    .microbatches = {4},
                    .recompute = random() % 2 == 0,
                    .replicas = random() % 2 == 0,
                    .most_copies = 4};
    if (random() % 2 == 0) request.schedules = {"2bw"};
    const double least = exhaustive(profile, request);
    if (!std::isfinite(least)) {
      EXPECT_THROW(make_plan(profile, request), std::invalid_argument);
      continue;
    }
    ++fit;
    const Planned planned = make_plan(profile, request);
    EXPECT_NEAR(planned.ranked.front().outcome.sample_ms, least, 1e-9 * (1 + least));
    for (const Plan& plan : planned.ranked) {
      EXPECT_LE(plan.outcome.peak_bytes, request.machine.memory_bytes * (1 + 1e-9));
    }
  }
  EXPECT_GT(fit, 100);
}

TEST(Outcome, AddsUpWhereNothingOverlaps) {
  Profile profile = equal_modules(4);
  for (ModuleProfile& module : profile.modules) module.bytes.activation = 100;
  const Machine machine{.levels = {{2, {0.25, 100}}}};
  const CostModel model(profile, machine, {.schedule = "sequential"});
  const Outcome outcome = outcome_of(profile, model, weigh(model, {{0, 2, 0}, {2, 4, 1}}));
  // Twelve of work; an activation of 1.25 ms there, an empty gradient of 0.25 ms back.
  EXPECT_DOUBLE_EQ(outcome.T_ms, 12);
  EXPECT_DOUBLE_EQ(outcome.sample_ms, 13.5);
  EXPECT_DOUBLE_EQ(outcome.latency_ms, 4 + 1.25);
}

TEST(Outcome, CountsAReplicaAsAStageOfAge) {
  const Machine machine{.levels = {{4, {}}}};
  Profile profile = equal_modules(6);
  profile.thread_speedup = {1, 1.5, 2, 2.5};
  const CostModel model(profile, machine, {.schedule = "pipedream"});
  const auto of = [&](const std::vector<Stage>& stages) {
    return outcome_of(profile, model, weigh(model, stages));
  };
  const auto straight = of({{0, 1, 0}, {1, 2, 1}, {2, 3, 2}, {3, 6, 3}}).gradient_age;
  EXPECT_EQ(straight, gradient_ages(make_schedule("pipedream", {.stages = 4, .microbatches = 4})));
  EXPECT_EQ(of({{0, 3, 0, 3, 1}, {3, 6, 3}}).gradient_age,
            (std::vector<std::int64_t>{straight[0], straight[3]}));
  // Threads work on one sample: two stages, on any number of cores.
  EXPECT_EQ(of({{0, 3, 0, 1, 3}, {3, 6, 3}}).gradient_age,
            gradient_ages(make_schedule("pipedream", {.stages = 2, .microbatches = 4})));
}

TEST(Plan, PrefersLessMemoryAmongEquallyFast) {
  const Planned planned = make_plan(
      equal_modules(8),
      {.machine = {.levels = {{4, {}}}}, .schedules = {"pipedream", "2bw", "pb", "partime"}});
  EXPECT_EQ(planned.ranked.front().method.schedule, "partime");
  for (const Plan& plan : planned.ranked) EXPECT_DOUBLE_EQ(plan.outcome.sample_ms, 6.0);
  EXPECT_EQ(planned.ranked.front().outcome.gradient_age, (std::vector<std::int64_t>{6, 4, 2, 0}));
}

TEST(Plan, RecomputesWhereMemoryAsksForIt) {
  // Four samples' activations of four modules are 1600 bytes; recomputed, 400 and no inputs.
  Request request{.machine = {.levels = {{2, {}}}, .memory_bytes = 1700},
                  .schedules = {"gpipe"},
                  .microbatches = {4},
                  .recompute = true};
  EXPECT_FALSE(only_plan(equal_modules(8), request).method.recompute);
  request.machine.memory_bytes = 1500;
  const Plan plan = only_plan(equal_modules(8), request);
  EXPECT_TRUE(plan.method.recompute);
  EXPECT_DOUBLE_EQ(plan.outcome.sample_ms, 4 * 4.0 * 5 / 4);
}

TEST(Plan, KeepsTensorParallelsWithinAServer) {
  // Large sums within modules, small messages between stages: Megatron-LM's first takeaway (arXiv
  // 2104.04473, section 3.2) is tensor up to the server's size, then pipeline.
  Profile profile = equal_modules(8);
  for (ModuleProfile& module : profile.modules) {
    module.tensor_ways = 8;
    module.tensor_bytes = module.tensor_gradient_bytes = 1000;
    module.bytes.weight = 1e5;
    module.bytes.activation = module.bytes.gradient = 500;
  }
  // One sample per minibatch: a pipeline gains nothing, only tensor parallelism does.
  const Plan plan = only_plan(
      profile, {.machine = {.levels = {{4, {1e-6, 1e6}}, {2, {0.01, 1e3}}}, .memory_bytes = 2.4e5},
                .schedules = {"1f1b"},
                .microbatches = {1},
                .most_tensor = 8,
                .most_copies = 8});
  EXPECT_EQ(plan.method.tensor, 4);
  EXPECT_EQ(int(plan.cut.stages.size()), 2);
}

TEST(Plan, KnowsTheLeastMemoryThatWouldDo) {
  std::mt19937 random(8);
  for (int trial = 0; trial < 100; ++trial) {
    SCOPED_TRACE(trial);
    const Profile profile = random_profile(random, 1 + int(random() % 7));
    const Machine machine{.levels = {{4, {}}}};
    const std::string schedule = trial % 2 == 0 ? "partime" : "pipedream";
    const Candidate candidate{{.schedule = schedule, .recompute = trial % 3 == 0},
                              {.replicas = trial % 2 > 0}};
    const CostModel model(profile, machine, candidate.method);
    double least = std::numeric_limits<double>::infinity();
    each_plan(int(profile.modules.size()), 4, candidate.freedom,
              [&](const std::vector<Stage>& stages) {
                least = std::min(least, peak_memory(model, stages));
              });
    EXPECT_NEAR(leanest_plan(profile, machine, candidate)->outcome.peak_bytes, least, 2e-6 * least);
  }
}

TEST(Plan, WeighsEveryMethodForAThousandModulesOn64Devices) {
  std::mt19937 random(9);
  const Request request{.machine = {.levels = {{8, {0.01, 1000}}, {8, {0.1, 100}}},
                                    .memory_bytes = 5e5,
                                    .overlap = Overlap::all},
                        .schedules = {"partime", "pb", "pipedream", "2bw", "gpipe", "1f1b"},
                        .microbatches = {64},
                        .recompute = true,
                        .replicas = true};
  EXPECT_GT(make_plan(random_profile(random, 1000), request).ranked.size(), 6u);
}

TEST(Plan, NamesWhatBinds) {
  const auto complaint_about = [](const Request& request) {
    return complaint<std::invalid_argument>([&] { make_plan(equal_modules(4), request); });
  };
  EXPECT_EQ(
      complaint_about({.machine = {.levels = {{2, {}}}, .memory_bytes = 150}}),
      "no plan fits memory of 150 B a device; the least that does is 200 B (partime, modules 0 "
      "to 1: weights 0 B in 1 version(s), gradient and optimizer 0 B, activations 200 B of 1 "
      "sample(s))");
  EXPECT_EQ(complaint_about({.machine = {.levels = {{8, {}}}}, .stages = 5}),
            "5 stages do not fit 4 modules on 8 devices");
  EXPECT_EQ(
      complaint_about(
          {.machine = {.levels = {{4, {}}}}, .schedules = {"interleaved"}, .microbatches = {6}}),
      "no method fits: 2bw needs microbatches >= stages, interleaved microbatches in multiples "
      "of its workers");
}

}  // namespace
}  // namespace millrace::engine::plan
