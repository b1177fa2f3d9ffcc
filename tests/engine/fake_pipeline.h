// A pipeline of steps that compute nothing, and record their calls.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "capture/step.h"
#include "engine/pipeline/pipeline.h"
#include "engine/pipeline/rank_options.h"
#include "engine/schedule/verifier.h"
#include "tests/engine/counted_feed.h"

namespace millrace::engine {

/// A step that computes nothing.
class EmptyStep : public capture::Step {
 public:
  void prepare() override {}
  void forward(int, std::int64_t) override {}
  void compare(int) override {}
  void discard(int) override {}
  void leave_out(int) override {}
  void recompute(int) override {}
  void backward(int, int) override {}
  void backward_input(int, int) override {}
  void backward_weight(int) override {}
  void update() override {}
  void skip_update() override {}
  void take_snapshot() override {}
  void roll_back() override {}
  void set_rate(double) override {}
  float loss(int) const override { return 1.0f; }
  std::int64_t skipped() const override { return 0; }
};

/// One process's samples in flight, by slot: plain memory, so that a missing hand-off is a data
/// race for the sanitizer and a wrong number for the test.
struct Memory {
  explicit Memory(const Schedule& schedule)
      : input(std::size_t(schedule.slots())),
        target(input),
        prediction(input),
        activations(std::size_t(schedule.stages), input),
        gradients(std::size_t(schedule.stages), input),
        sums(std::size_t(schedule.replica_ids())),
        updates(sums.size()),
        met(sums.size(), sums) {}

  using Numbers = std::vector<std::int64_t>;
  Numbers input, target, prediction;
  std::vector<Numbers> activations, gradients;  ///< [stage that gives them]
  // [replica_id]: the sample whose gradient an update applies, in turn for even and odd ones; the
  // number of updates; numbers from other processes, by giver and taker.
  std::vector<std::array<std::int64_t, 2>> sums;
  Numbers updates;
  std::vector<std::vector<std::array<std::int64_t, 2>>> met;
};

/// Passes on samples' numbers with the stage that gives them (-1: the feed), and records its calls.
class FakeStep final : public EmptyStep {
 public:
  struct Noted {
    char what;  ///< a letter for each call below
    std::int64_t sample = -1, with = -1;
    bool operator==(const Noted&) const = default;
  };

  /// `here`: by replica_id, whether this process runs the replica.
  FakeStep(Memory& memory, int stage, int replica_id, std::map<int, bool> here)
      : memory_(memory),
        stage_(std::size_t(stage)),
        last_(stage_ + 1 == memory.activations.size()),
        replica_id_(std::size_t(replica_id)),
        here_(std::move(here)),
        kept_(memory.input.size()) {}

  static std::int64_t given(std::int64_t sample, int by_stage) {
    return 16 * sample + by_stage + 1;
  }

  void forward(int slot, std::int64_t version) override {
    const std::size_t at = std::size_t(slot);
    kept_[at] = taken(stage_ > 0 ? memory_.activations[stage_ - 1][at] : memory_.input[at],
                      int(stage_) - 1);
    note('F', kept_[at], version);
    (last_ ? memory_.prediction : memory_.activations[stage_])[at] = given(kept_[at], int(stage_));
    if (last_) note('T', kept_[at], memory_.target[at]);
  }
  void backward(int slot, int gradient_slot) override {
    const std::int64_t sample = kept_[std::size_t(slot)];
    note('B', sample,
         last_ ? sample
               : taken(memory_.gradients[stage_ + 1][std::size_t(gradient_slot)], int(stage_) + 1));
    if (stage_ > 0) memory_.gradients[stage_][std::size_t(slot)] = given(sample, int(stage_));
    memory_.sums[replica_id_][half()] = sample;
  }
  void backward_input(int slot, int gradient_slot) override { backward(slot, gradient_slot); }
  void backward_weight(int slot) override { note('W', kept_[std::size_t(slot)]); }
  void backward_local(int slot) override { note('L', kept_[std::size_t(slot)]); }
  void recompute(int slot) override { note('R', kept_[std::size_t(slot)]); }
  void discard(int slot) override { note('D', kept_[std::size_t(slot)]); }
  void leave_out(int slot) override { discard(slot); }
  void update() override { count('U'); }
  void skip_update() override { count('S'); }
  float loss(int slot) const override { return float(kept_[std::size_t(slot)] % 4096); }

  std::vector<Noted> noted;
  /// 'M': samples whose gradients updates applied, of all replicas.
  std::vector<std::int64_t> samples(char what) const {
    std::vector<std::int64_t> all;
    for (const Noted& one : noted) {
      if (one.what == what) all.push_back(one.sample);
    }
    return all;
  }
  std::int64_t count_of(char what) const { return std::int64_t(samples(what).size()); }

 private:
  static std::int64_t taken(std::int64_t number, int from_stage) {
    EXPECT_EQ(number % 16, from_stage + 1);
    return number / 16;
  }
  std::size_t half() const { return std::size_t(memory_.updates[replica_id_] % 2); }
  void note(char what, std::int64_t sample, std::int64_t with = -1) {
    noted.push_back({what, sample, with});
  }
  void count(char what) {
    note(what, -1);
    for (const auto& [other, is_here] : here_) {
      const std::size_t from = std::size_t(other);
      note('M', (is_here ? memory_.sums[from] : memory_.met[from][replica_id_])[half()], other);
    }
    ++memory_.updates[replica_id_];
  }

  Memory& memory_;
  const std::size_t stage_;
  const bool last_;
  const std::size_t replica_id_;
  const std::map<int, bool> here_;
  std::vector<std::int64_t> kept_;  ///< [slot]
};

/// Numbers of samples. `mixed`: some are replayed, and some have no target.
class NumberFeed final : public CountedFeed {
 public:
  NumberFeed(Memory& memory, std::int64_t samples, bool mixed)
      : CountedFeed(samples), memory_(memory), mixed_(mixed) {}

 private:
  void fill(std::int64_t n, Sample& sample) override {
    memory_.input[std::size_t(sample.slot)] = FakeStep::given(n, -1);
    memory_.target[std::size_t(sample.slot)] = -n;
    sample.info.has_target = !mixed_ || n % 7 != 3;
    sample.info.replayed = mixed_ && n % 5 == 2;
  }
  Memory& memory_;
  const bool mixed_;
};

/// Records frame, sample, loss (-1: none), prediction and input.
class Seen final : public Observer {
 public:
  explicit Seen(Memory& memory) : memory_(memory) {}
  void predicted(Sample& sample, float loss) override {
    const std::size_t slot = std::size_t(sample.slot);
    all.push_back({sample.info.frame, sample.info.sample,
                   std::isnan(loss) ? -1 : std::int64_t(loss), memory_.prediction[slot],
                   memory_.input[slot]});
  }
  std::vector<std::array<std::int64_t, 5>> all;

 private:
  Memory& memory_;
};

/// One process's pipeline with all its memory.
struct FakePipeline {
  /// `here`: which replicas it runs, by replica_id; others have no step. Empty: all.
  FakePipeline(const Schedule& of, std::int64_t samples,
               const std::function<bool(int replica_id)>& here = {}, bool mixed = false)
      : schedule(of),
        monitor(schedule.replica_counts(), 0),
        memory(schedule),
        feed(memory, samples, mixed),
        seen(memory) {
    for (int stage = 0; stage < schedule.stages; ++stage) {
      std::map<int, bool> replicas;
      for (int replica = 0; replica < schedule.replicas_of(stage); ++replica) {
        const int replica_id = schedule.replica_id(stage, replica);
        replicas[replica_id] = !here || here(replica_id);
      }
      for (const auto& [replica_id, is_here] : replicas) {
        steps.push_back(is_here ? std::make_unique<FakeStep>(memory, stage, replica_id, replicas)
                                : nullptr);
      }
    }
  }

  Outcome run(PipelineOptions options = {}) { return run(std::move(options), feed, &seen); }
  Outcome run(PipelineOptions options, Feed& from, Observer* observer) {
    Pipeline pipeline{
        .schedule = schedule,
        .monitor = monitor,
        .link_capacity = ranks || verify(schedule) ? 0 : tensor_sets(schedule).capacity,
        .before = before,
        .late_targets = late_targets,
        .ranks = ranks};
    for (const auto& step : steps) pipeline.steps.push_back(step.get());
    if (ranks && ranks->exchange->rank() != 0) observer = nullptr;
    return run_pipeline(pipeline, from, observer, options);
  }

  const Schedule schedule;
  Monitor monitor;
  Memory memory;
  NumberFeed feed;
  Seen seen;
  std::vector<std::unique_ptr<FakeStep>> steps;
  // See Pipeline.
  std::int64_t before = 0;
  bool late_targets = false;
  const RankOptions* ranks = nullptr;
};

}  // namespace millrace::engine
