#include "engine/plan/plan_text.h"

#include <gtest/gtest.h>

#include "engine/schedule/registry.h"
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
  return make_plans(profile, request).front();
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
    const bool recomputes = request.recompute && schedule_entry(schedule).recomputes;
    for (int recompute = 0; recompute <= int(recomputes); ++recompute) {
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
      EXPECT_THROW(make_plans(profile, request), std::invalid_argument);
      continue;
    }
    ++fit;
    const std::vector<Plan> plans = make_plans(profile, request);
    EXPECT_NEAR(plans.front().outcome.sample_ms, least, 1e-9 * (1 + least));
    for (const Plan& plan : plans) {
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
  // Twelve of work; an activation of 1.25 ms there, an empty gradient of 0.25 ms back: of the
  // sender's time, then of the receiver's.
  EXPECT_DOUBLE_EQ(outcome.T_ms, 12);
  EXPECT_DOUBLE_EQ(outcome.sample_ms, 12 + 2 * 1.5);
  EXPECT_DOUBLE_EQ(outcome.latency_ms, 4 + 2 * 1.25);
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

TEST(Outcome, LeavesReplicasIdleAtTheEndOfAMinibatch) {
  const Profile profile = equal_modules(4);
  const Machine machine{.levels = {{8, {}}}};
  const auto of = [&](int microbatches, const std::vector<Stage>& stages) {
    const CostModel model(profile, machine, {.schedule = "gpipe", .microbatches = microbatches});
    return outcome_of(profile, model, weigh(model, stages));
  };
  const Outcome three = of(3, {{0, 4, 6, 2}});
  EXPECT_DOUBLE_EQ(three.sample_ms, 2 * 12 / 3.0);
  EXPECT_DOUBLE_EQ(three.peak_bytes, 2 * 400);
  // Both samples reach the second stage at a time.
  EXPECT_DOUBLE_EQ(of(2, {{0, 3, 5, 2}, {3, 4, 7}}).sample_ms, (9 + 2 * 3) / 2.0);
  const Plan one = only_plan(
      profile, {.machine = machine, .schedules = {"1f1b"}, .microbatches = {1}, .replicas = true});
  EXPECT_DOUBLE_EQ(one.outcome.sample_ms, 12);
}

TEST(Plan, PrefersLessMemoryAmongEquallyFast) {
  const std::vector<Plan> plans = make_plans(
      equal_modules(8),
      {.machine = {.levels = {{4, {}}}}, .schedules = {"pipedream", "2bw", "pb", "partime"}});
  EXPECT_EQ(plans.front().method.schedule, "partime");
  for (const Plan& plan : plans) EXPECT_DOUBLE_EQ(plan.outcome.sample_ms, 6.0);
  EXPECT_EQ(plans.front().outcome.gradient_age, (std::vector<std::int64_t>{6, 4, 2, 0}));
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
    Request request{.machine = {.levels = {{4, {}}}}, .replicas = trial % 2 > 0};
    request.schedules = {request.replicas ? "pipedream" : "partime"};
    const CostModel model(profile, request.machine, {.schedule = request.schedules[0]});
    double least = std::numeric_limits<double>::infinity();
    each_plan(int(profile.modules.size()), 4, {.replicas = request.replicas},
              [&](const std::vector<Stage>& stages) {
                least = std::min(least, peak_memory(model, stages));
              });
    request.machine.memory_bytes = 0.9 * least;
    const std::string said =
        complaint<std::invalid_argument>([&] { make_plans(profile, request); });
    EXPECT_NE(said.find("the least that does is " + bytes_text(least) + " ("), said.npos) << said;
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
  EXPECT_GT(make_plans(random_profile(random, 1000), request).size(), 6u);
}

TEST(Plan, NamesWhatBinds) {
  const auto complaint_about = [](const Request& request) {
    return complaint<std::invalid_argument>([&] { make_plans(equal_modules(4), request); });
  };
  EXPECT_EQ(
      complaint_about({.machine = {.levels = {{2, {}}}, .memory_bytes = 150}}),
      "no plan fits memory of 150 B a device; the least that does is 200 B (partime, modules 0 "
      "to 1: weights 0 B in 1 version(s), gradient and optimizer 0 B, activations 200 B of 1 "
      "sample(s))");
  EXPECT_EQ(
      complaint_about(
          {.machine = {.levels = {{2, {}}}, .memory_bytes = 150}, .schedules = {"interleaved"}}),
      "no plan fits memory of 150 B a device; the fastest cut takes 400 B (interleaved); others "
      "were not tried");
  EXPECT_EQ(complaint_about({.machine = {.levels = {{8, {}}}}, .stages = 5}),
            "5 stages do not fit 4 modules on 8 devices");
  EXPECT_EQ(
      complaint_about({.machine = {.levels = {{4, {}}}},
                       .schedules = {"interleaved"},
                       .microbatches = {6},
                       .virtual_stages = {1},
                       .stages = 4}),
      "no method fits: 2bw needs microbatches >= stages, interleaved microbatches in multiples "
      "of its workers");
}

TEST(Plan, AWorkersChunksShareItsDevice) {
  for (const int devices : {2, 4}) {
    const Plan plan = make_plans(equal_modules(4), {.machine = {.levels = {{devices, {1, 1}}}},
                                                    .schedules = {"interleaved"},
                                                    .virtual_stages = {2},
                                                    .stages = 4})
                          .front();
    EXPECT_NE(pipeline_toml(plan, {.levels = {{devices, {}}}}, "cpu")
                  .find(R"(devices = ["cpu:0", "cpu:1", "cpu:0", "cpu:1"])"),
              std::string::npos);
  }
}

Profile small() {
  Profile profile;
  profile.network = "small";
  for (int i = 0; i < 4; ++i) {
    ModuleProfile module;
    module.name = i % 2 == 0 ? "conv" : "relu";
    module.forward.median = i % 2 == 0 ? 4 : 1;
    module.weight_gradient.median = i % 2 == 0 ? 6 : 1;
    module.bytes = {1e6, 1e6, i == 0 ? 2e6 : 1e5, 0, 3e6};
    profile.modules.push_back(module);
  }
  return profile;
}

TEST(Plan, APipelineThatWaitsHasAsManyStagesAsAreFastest) {
  const Profile profile = small();
  for (const char* const schedule : {"gpipe", "1f1b", "zb-h1", "sequential"}) {
    for (const double ms : {0.0, 3.0, 30.0}) {
      for (const int devices : {8, 20}) {
        Request request{.machine = {.levels = {{devices, {ms, 1e6}}}}, .schedules = {schedule}};
        const auto least_ms = [&] { return only_plan(profile, request).outcome.sample_ms; };
        const double best = least_ms();
        request.replicas = request.threads = true;
        const double wide = least_ms();
        double least = 1e9;
        for (request.stages = 1; request.stages <= 4; ++request.stages)
          least = std::min(least, least_ms());
        EXPECT_DOUBLE_EQ(best, least) << schedule << " " << ms;
        EXPECT_LE(wide, least) << schedule << " " << ms;
      }
    }
  }
}

TEST(Plan, ThreadsShareASampleWhereStagesWait) {
  Profile profile = small();
  profile.thread_speedup = {1, 1.5};  // three are no faster
  Request request{.machine = {.levels = {{3, {}}}}, .schedules = {"sequential"}, .threads = true};
  const Plan two = only_plan(profile, request);
  EXPECT_EQ(two.cut.stages, (std::vector<Stage>{{0, 4, 1, 1, 2}}));
  EXPECT_DOUBLE_EQ(two.outcome.sample_ms, 24 / 1.5);
  request.stages = 2;
  EXPECT_EQ(only_plan(profile, request).cut.stages.size(), 2u);
}

TEST(PlanText, SaysPlanWhyOthersAndWhatToExpect) {
  const Profile profile = small();
  const Request request{.machine = {.levels = {{2, {0.1, 1e6}}}, .memory_bytes = 2e7},
                        .schedules = {"partime", "pipedream"},
                        .fps = 50};
  const std::string text = plan_text(profile, request, make_plans(profile, request));
  EXPECT_EQ(text, R"(network   small, 4 modules, on 2 devices
plan      partime, 2 stages, cut [2]
stage modules    replicas threads    work   agree  arrive   leave  period ms    memory versions samples  age
0     0-1               1       1  12.000   0.000   0.000   2.200     14.200   10.2 MB        1       1    2  conv  <- slowest
1     2-3               1       1  12.000   0.000   2.200   0.000     14.200    6.4 MB        1       1    0  conv
why       stage 0 sets the pace, by its work: 12.000 of 14.200 ms a sample; T over its 2 places is 12.000 ms
other     pipedream, 2 stages: 70.42 frames a second (+0.0 %), latency 19.2 ms, memory 18.3 MB
expect    70.42 frames a second, latency 19.2 ms, at most 10.2 MB a device of 20 MB, gradients up to 2 frames old
real time HOLDS: a frame every 14.200 ms <= 1/F 20.000 ms at 50 frames a second; T/N 12.000 ms < 1/F
)");
}

TEST(PlanText, IsAPipelineTable) {
  const Machine machine{.levels = {{3, {}}}};
  Plan plan;
  plan.method = {.schedule = "2bw", .microbatches = 8, .recompute = true};
  plan.cut.stages = {{0, 5, 0, 2, 1}, {5, 7, 2, 1, 1}};
  EXPECT_EQ(pipeline_toml(plan, machine, "cuda"),
            "[pipeline]\n"
            "schedule = \"2bw\"\n"
            "stages = 2\n"
            "cut = [5]\n"
            "devices = [\"cuda:0\", \"cuda:1\", \"cuda:2\"]\n"
            "microbatches = 8\n"
            "replicas = [2, 1]  # planned only: run has no replicas of this schedule\n"
            "recompute = true\n");
}

TEST(PlanText, GivesCopiesAsReplicasAndLeavesTheLastOfEqualDevicesIdle) {
  const auto has = [](const Method& method, const std::vector<Stage>& stages,
                      const std::vector<std::string>& parts) {
    Plan plan;
    plan.method = method;
    plan.cut.stages = stages;
    const std::string text = pipeline_toml(plan, {.levels = {{4, {}}}}, "cpu");
    for (const std::string& part : parts) EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  has({.schedule = "1f1b", .microbatches = 4, .copies = 2}, {{0, 5, 0, 1, 1}, {5, 7, 1, 1, 1}},
      {"devices = [\"cpu:0\", \"cpu:2\", \"cpu:1\", \"cpu:3\"]\n", "microbatches = 8\n",
       "replicas = [2, 2]"});
  has({.schedule = "pipedream"}, {{0, 5, 1, 2, 1}, {5, 7, 3, 1, 1}},
      {"devices = [\"cpu:0\", \"cpu:1\", \"cpu:2\"]\n", "replicas = [2, 1]\n"});
}

}  // namespace
}  // namespace millrace::engine::plan
