// Broken schedules are either rejected or equivalent to the original.
#include <gtest/gtest.h>

#include <random>

#include "engine/schedule/registry.h"
#include "engine/schedule/schedule.h"
#include "engine/schedule/verifier.h"
#include "tests/engine/fake_pipeline.h"
#include "tests/engine/oracle.h"
#include "tests/engine/sample_feed.h"
#include "tests/repetitions.h"

namespace millrace::engine {
namespace {

constexpr std::int64_t kSamples = 12;
const stages::ImageShape kPicture{1, 4, 4};

/// Drops, swaps or relabels one action.
void mutate(Schedule& schedule, std::mt19937& random) {
  Program& program = schedule.workers[random() % schedule.workers.size()];
  std::vector<Action>& list =
      !program.prologue.empty() && random() % 2 ? program.prologue : program.period;
  const std::size_t at = random() % list.size();
  switch (random() % 7) {
    case 0:
      list.erase(list.begin() + std::ptrdiff_t(at));
      break;
    case 1:
      std::swap(list[at], list[random() % list.size()]);
      break;
    case 2:
      list[at].sample += random() % 2 ? 1 : -1;
      break;
    case 3:
      list[at].gradient += random() % 2 ? 1 : -1;
      break;
    case 4:
      list[at].stage = int(random() % schedule.stages);
      break;
    case 5:
      list[at].op = Op(random() % 6);
      break;
    default:
      list[at].version += random() % 2 ? 1 : -1;
      break;
  }
  if (program.period.empty())
    program.period = {{Op::update, 0, 0, 0}};  // an endless list of updates
}

TrainerOptions options_of(const std::string& name, int stages) {
  TrainerOptions options;
  options.network =
      stages::build_network({.layers = 2, .features = 2, .kernel = 1, .out_channels = 1}, kPicture);
  options.sample = kPicture;
  options.schedule = name;
  options.stages = stages;
  for (int i = 1; i < stages; ++i) options.cut.push_back(i);
  options.optimizer.lr = 1.0;
  options.weights = stages::initial_state(*options.network, 3);
  return options;
}

/// Every schedule at 2 and 4 stages, and some replicated and recomputing.
std::vector<TrainerOptions> all_options() {
  std::vector<TrainerOptions> all;
  for (const std::string& name : schedule_names()) {
    for (const int stages : {2, 4}) all.push_back(options_of(name, stages));
  }
  for (const std::vector<int>& replicas : {std::vector<int>{2, 1}, {1, 2}, {2, 1, 2}}) {
    all.push_back(options_of("pipedream", int(replicas.size())));
    all.back().replicas = replicas;
  }
  for (const std::string name : {"gpipe", "zb-h1", "2bw"}) {
    all.push_back(options_of(name, 3));
    all.back().recompute = true;
  }
  return all;
}

stages::StateDict meaning(const Schedule& schedule, const TrainerOptions& options) {
  std::vector<stages::Stage> stages = tied_stages(options, schedule);
  run_oracle(
      schedule, stages, [](std::int64_t n) { return sample_at(n, kPicture); }, kSamples);
  stages::StateDict all;
  for (const stages::Stage& stage : stages) {
    for (auto& entry : stage.parameters().state()) all.push_back(std::move(entry));
  }
  return all;
}

/// The engine's worker threads end, and apply what the schedule says.
void expect_to_end(const Schedule& schedule) {
  EXPECT_EQ(FakePipeline(schedule, kSamples).run().trained, schedule.trained(kSamples));
}

TEST(Mutants, AreRejectedOrMeanTheSame) {
  std::mt19937 random(2026);
  const std::vector<TrainerOptions> originals = all_options();
  const int each = repetitions(10000) / int(originals.size()) + 1;
  int rejected = 0, equal = 0;
  for (const TrainerOptions& options : originals) {
    const Schedule original = schedule_of(options);
    const stages::StateDict expected = meaning(original, options);
    for (int i = 0; i < each; ++i) {
      Schedule mutant = original;
      mutate(mutant, random);
      if (verify(mutant)) {
        ++rejected;
        continue;
      }
      expect_equal_bits(meaning(mutant, options), expected);
      ASSERT_FALSE(testing::Test::HasFailure())
          << options.schedule << " at " << options.stages << " stages, mutant " << i;
      if (equal++ % 10 == 0) expect_to_end(mutant);
    }
  }
  RecordProperty("rejected", rejected);
  RecordProperty("equal", equal);
  EXPECT_EQ(rejected + equal, each * int(originals.size()));
  EXPECT_GT(rejected, equal) << "most mutants are broken";
}

}  // namespace
}  // namespace millrace::engine
