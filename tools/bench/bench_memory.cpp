#include "tools/bench/bench_memory.h"

#include <cstring>  // frames

#include "engine/simulate/staircase.h"
#include "tools/bench/bench_arm.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStages = 4, kMicrobatches = 8, kMinibatches = 4;

/// A schedule, and what its paper says that stage i of N keeps with m samples a minibatch.
struct Row {
  const char* schedule;
  bool recompute;
  const char* samples;   ///< between forward and backward
  const char* versions;  ///< of the weights
};

constexpr Row kRows[] = {{"sequential", false, "1", "1"},
                         {"partime", false, "1", "1"},
                         {"pb", false, "2(N-1-i)+1", "1"},
                         {"pipedream", false, "N-i", "N-i"},
                         {"2bw", false, "N-i", "2"},
                         {"gpipe", false, "m", "1"},
                         {"gpipe", true, "m inputs, 1", "1"},
                         {"1f1b", false, "N-i", "1"},
                         {"interleaved", false, "(v-1)p+2(p-r-1)+1 a worker", "1"},
                         {"zb-h1", false, "N", "1"}};

class BlankFeed final : public engine::Feed {
 public:
  BlankFeed(engine::Trainer& trainer, std::size_t elements, std::int64_t samples)
      : trainer_(trainer), elements_(elements), samples_(samples) {}
  Status poll(std::chrono::microseconds patience) override {
    return taken_ < samples_ ? Status::ready : Status::end;
  }
  void take(engine::Sample& sample) override {
    std::memset(sample.input().data(), 0, elements_ * sizeof(float));
    sample.info.frame = taken_++;
    sample.info.captured = engine::Clock::now();
  }

 private:
  engine::Trainer& trainer_;
  const std::size_t elements_;
  const std::int64_t samples_;
  std::int64_t taken_ = 0;
};

/// [{"weights", ...}], one a stage.
Json measure(const Row& row, std::int64_t size) {
  engine::TrainerOptions options;
  options.sample = {3, size, size};
  options.network = stages::build_network(bench_network("basic"), options.sample);
  options.schedule = row.schedule;
  options.stages = kStages;
  options.microbatches = kMicrobatches;
  options.recompute = row.recompute;
  options.cut = {5, 10, 15};
  const engine::Schedule schedule = engine::schedule_of(options);
  const std::vector<std::int64_t> kept =
      engine::draw_staircase(schedule, kMinibatches * kMicrobatches).activations;
  Json stages = Json::array();
  for (const engine::StageMemory& memory : memory_of(std::move(options))) {
    const auto stage = int(stages.size());
    stages.push_back({{"versions", schedule.versions_of(stage)},
                      {"samples", kept[stage]},
                      {"weights", memory.weights},
                      {"stashes", memory.stashes},
                      {"activations", memory.activations},
                      {"total", memory.total()}});
  }
  return stages;
}

}  // namespace

std::vector<engine::StageMemory> memory_of(engine::TrainerOptions options) {
  options.capture = engine::Capture::eager;
  const stages::ImageShape sample = options.sample;
  const int samples = kMinibatches * options.microbatches;
  engine::Trainer trainer(std::move(options));
  BlankFeed feed(trainer, std::size_t(sample.channels * sample.height * sample.width), samples);
  trainer.run(feed, nullptr);
  std::vector<engine::StageMemory> stages;
  for (const engine::StageFacts& facts : trainer.facts()) stages.push_back(facts.memory);
  return stages;
}

Json memory_by_schedule(std::int64_t size) {
  Json results = {{"stages", kStages}, {"microbatches", kMicrobatches}, {"arms", Json::array()}};
  Json one;  // a sample's activations, as sequential keeps them
  for (const Row& row : kRows) {
    Json arm = {{"arm", std::string(row.schedule) + (row.recompute ? " recompute" : "")},
                {"paper", {{"samples", row.samples}, {"versions", row.versions}}},
                {"stages", measure(row, size)}};
    if (one.is_null()) one = arm["stages"];
    for (std::size_t i = 0; i < arm["stages"].size(); ++i) {
      Json& stage = arm["stages"][i];
      stage["formula"] =
          stage["samples"].get<std::int64_t>() * one[i]["activations"].get<std::int64_t>();
    }
    results["arms"].push_back(std::move(arm));
  }
  return results;
}

}  // namespace millrace::bench
