// A run over several ranks, on steps that compute nothing: it does what one process does. Run by
// ThreadSanitizer.
#include "engine/pipeline/rank_edge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "engine/schedule/registry.h"
#include "tests/complaint.h"
#include "tests/engine/counted_feed.h"
#include "tests/engine/empty_step.h"
#include "tests/engine/random_sleeps.h"
#include "tests/engine/thread_exchange.h"

namespace millrace::engine {
namespace {

using Number = std::uint64_t;

Number mixed(Number a, Number b) {
  a ^= b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2);
  return a * 0xbf58476d1ce4e5b9u;
}

/// What one process holds of the samples in flight, by slot: plain memory, so that a missing
/// hand-off is a data race and a wrong number.
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
  std::vector<Number> input, target, prediction;
  std::vector<std::vector<Number>> activations, gradients;  ///< by the stage that gives them
  // By replica_id: what the gradients for an update add up to, in turn for even and odd ones; how
  // many there were; and what came from other processes, by giver and taker.
  std::vector<std::array<Number, 2>> sums;
  std::vector<Number> updates;
  std::vector<std::vector<std::array<Number, 2>>> met;
};

class MemoryFreight final : public Freight {
 public:
  explicit MemoryFreight(Memory& memory) : memory_(memory) {}
  void await(Cargo, int, int) override {}
  Payload payload(Cargo cargo, int stage, int slot, bool) override {
    if (cargo == Cargo::meeting) return meeting();
    return {.parts = {std::as_writable_bytes(std::span(&at(cargo, stage, slot), 1))}};
  }
  bool target_is_input() const override { return false; }
  std::vector<float>& gradient(int, std::size_t) override { throw std::logic_error("no copies"); }
  void set_gradient(int, int) override {}

 private:
  Payload meeting() {
    struct Sum {
      Number at, number;
    };
    const auto sum = std::make_shared<Sum>();
    return {.parts = {std::as_writable_bytes(std::span(sum.get(), 1))},
            .pack =
                [=, this](int from, int) {
                  const Number at = memory_.updates[std::size_t(from)] % 2;
                  *sum = {at, memory_.sums[std::size_t(from)][at]};
                },
            .unpack =
                [=, this](int from, int to) {
                  memory_.met[std::size_t(from)][std::size_t(to)][sum->at] = sum->number;
                }};
  }
  Number& at(Cargo cargo, int stage, int slot) {
    switch (cargo) {
      case Cargo::sample:
        return memory_.input[std::size_t(slot)];
      case Cargo::activation:
        return memory_.activations[std::size_t(stage)][std::size_t(slot)];
      case Cargo::gradient:
        return memory_.gradients[std::size_t(stage)][std::size_t(slot)];
      case Cargo::target:
        return memory_.target[std::size_t(slot)];
      case Cargo::prediction:
        return memory_.prediction[std::size_t(slot)];
      default:
        throw std::logic_error("a message without numbers");
    }
  }
  Memory& memory_;
};

/// Makes a number of all that it is asked to do, in order.
class DigestStep final : public EmptyStep {
 public:
  /// `here`: of the stage's replicas, by replica_id.
  DigestStep(Memory& memory, int stage, bool last, int replica_id, std::map<int, bool> here)
      : memory_(memory),
        stage_(std::size_t(stage)),
        last_(last),
        replica_id_(replica_id),
        here_(std::move(here)),
        kept_(memory.input.size()) {}
  void forward(int slot, std::int64_t version) override {
    const std::size_t at = std::size_t(slot);
    kept_[at] = stage_ > 0 ? memory_.activations[stage_ - 1][at] : memory_.input[at];
    note(1, kept_[at], Number(version));
    const Number made = mixed(kept_[at], stage_);
    if (!last_) {
      memory_.activations[stage_][at] = made;
      return;
    }
    memory_.prediction[at] = made;
    kept_[at] = mixed(made, memory_.target[at]);
  }
  void backward(int slot, int gradient_slot) override {
    const std::size_t at = std::size_t(slot);
    const Number gradient =
        last_ ? kept_[at] : memory_.gradients[stage_ + 1][std::size_t(gradient_slot)];
    note(2, kept_[at], gradient);
    Number& sum = memory_.sums[std::size_t(replica_id_)][sum_()];
    sum = mixed(sum, mixed(gradient, kept_[at]));
    if (stage_ > 0) memory_.gradients[stage_][at] = mixed(gradient, kept_[at]);
  }
  void backward_input(int slot, int gradient_slot) override { backward(slot, gradient_slot); }
  void backward_weight(int slot) override { note(3, kept_[std::size_t(slot)], 0); }
  void recompute(int slot) override { note(4, kept_[std::size_t(slot)], 0); }
  void leave_out(int slot) override { note(5, kept_[std::size_t(slot)], 0); }
  void update() override { count(6); }
  void skip_update() override { count(7); }
  float loss(int slot) const override { return float(kept_[std::size_t(slot)] % 4096); }

  Number digest = 0;

 private:
  std::size_t sum_() const { return memory_.updates[std::size_t(replica_id_)] % 2; }
  void count(Number what) {
    for (const auto& [other, here] : here_) {
      const std::size_t from = std::size_t(other);
      note(what, other,
           here ? memory_.sums[from][sum_()] : memory_.met[from][std::size_t(replica_id_)][sum_()]);
    }
    // The other half was met at the last update, so that nobody reads it any longer.
    ++memory_.updates[std::size_t(replica_id_)];
    memory_.sums[std::size_t(replica_id_)][sum_()] = 0;
  }
  void note(Number what, Number a, Number b) { digest = mixed(mixed(mixed(digest, what), a), b); }
  Memory& memory_;
  const std::size_t stage_;
  const bool last_;
  const int replica_id_;
  const std::map<int, bool> here_;
  std::vector<Number> kept_;
};

class NumberFeed final : public CountedFeed {
 public:
  NumberFeed(Memory& memory, std::int64_t samples) : CountedFeed(samples), memory_(memory) {}

 private:
  void fill(std::int64_t n, Sample& sample) override {
    memory_.input[std::size_t(sample.slot)] = mixed(17, Number(n));
    memory_.target[std::size_t(sample.slot)] = mixed(19, Number(n));
    sample.info.has_target = n % 7 != 3;
    sample.info.replayed = n % 5 == 2;
  }
  Memory& memory_;
};

class Seen final : public Observer {
 public:
  explicit Seen(Memory& memory) : memory_(memory) {}
  void predicted(Sample& sample, float loss) override {
    const std::size_t slot = std::size_t(sample.slot);
    Number number = mixed(Number(sample.info.frame), Number(sample.info.sample));
    number = mixed(number, std::isnan(loss) ? 1 : Number(loss));
    number = mixed(number, memory_.prediction[slot]);
    all.push_back(mixed(number, memory_.input[slot]));
  }
  std::vector<Number> all;

 private:
  Memory& memory_;
};

/// One process's pipeline.
struct Process {
  /// `here`: which replicas it runs, by replica_id; others have no step.
  Process(const Schedule& of, std::int64_t samples, const std::function<bool(int)>& here = {})
      : schedule(of),
        monitor(schedule.replica_counts(), 0),
        memory(schedule),
        freight(memory),
        feed(memory, samples),
        seen(memory) {
    for (int stage = 0; stage < schedule.stages; ++stage) {
      std::map<int, bool> replicas;
      for (int replica = 0; replica < schedule.replicas_of(stage); ++replica) {
        const int replica_id = schedule.replica_id(stage, replica);
        replicas[replica_id] = !here || here(replica_id);
      }
      for (const auto& [replica_id, is_here] : replicas) {
        steps.push_back(!is_here ? nullptr
                                 : std::make_unique<DigestStep>(memory, stage,
                                                                stage + 1 == schedule.stages,
                                                                replica_id, replicas));
      }
    }
  }
  void run(PipelineOptions options) {
    std::vector<capture::Step*> list;
    for (const auto& step : steps) list.push_back(step.get());
    const bool observes = !options.ranks || options.ranks->exchange->rank() == 0;
    outcome =
        Pipeline(schedule, list, feed, observes ? &seen : nullptr, monitor, std::move(options))
            .run();
  }

  const Schedule schedule;
  Monitor monitor;
  Memory memory;
  MemoryFreight freight;
  NumberFeed feed;
  Seen seen;
  std::vector<std::unique_ptr<DigestStep>> steps;
  Outcome outcome;
};

/// A run over ranks that are threads here.
struct Ranks {
  Ranks(const Schedule& of, std::int64_t samples, std::vector<int> dealt, int count)
      : schedule(of), rank_of_worker(std::move(dealt)) {
    for (int rank = 0; rank < count; ++rank) {
      exchanges.push_back(std::make_unique<ThreadExchange>(sea, rank, count));
      processes.push_back(std::make_unique<Process>(schedule, samples, [&](int replica_id) {
        const int worker = workers_of_replicas(schedule)[std::size_t(replica_id)];
        return rank_of_worker[std::size_t(worker)] == rank;
      }));
    }
  }
  /// Each with what `options` gives it. What a rank threw is kept.
  void run(const std::function<PipelineOptions(int rank)>& options) {
    std::vector<std::thread> threads;
    failures.assign(processes.size(), "");
    for (std::size_t rank = 0; rank < processes.size(); ++rank) {
      threads.emplace_back([&, rank] {
        const RankOptions ranks{exchanges[rank].get(), &processes[rank]->freight, rank_of_worker};
        PipelineOptions mine = options(int(rank));
        mine.ranks = &ranks;
        try {
          processes[rank]->run(std::move(mine));
        } catch (const std::exception& error) {
          failures[rank] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  /// The step of a replica where it ran.
  const DigestStep& step(int replica_id) const {
    const int worker = workers_of_replicas(schedule)[std::size_t(replica_id)];
    return *processes[std::size_t(rank_of_worker[std::size_t(worker)])]
                ->steps[std::size_t(replica_id)];
  }

  const Schedule schedule;
  const std::vector<int> rank_of_worker;
  const std::shared_ptr<Sea> sea = std::make_shared<Sea>();
  std::vector<std::unique_ptr<ThreadExchange>> exchanges;
  std::vector<std::unique_ptr<Process>> processes;
  std::vector<std::string> failures;
};

void expect_as_in_one_process(const Schedule& schedule, const std::vector<int>& dealt, int count,
                              const std::atomic<std::int64_t>* train_every = nullptr) {
  constexpr std::int64_t kSamples =
      96;  // whole minibatches: of others it is not known how far they go
  Process alone(schedule, kSamples);
  alone.run({.train_every = train_every});
  Ranks ranks(schedule, kSamples, dealt, count);
  ranks.run([&](int rank) {
    PipelineOptions options = random_sleeps();
    if (rank == 0) options.train_every = train_every;
    return options;
  });
  for (const std::string& failure : ranks.failures) EXPECT_EQ(failure, "");
  for (int replica_id = 0; replica_id < schedule.replica_ids(); ++replica_id)
    EXPECT_EQ(ranks.step(replica_id).digest, alone.steps[std::size_t(replica_id)]->digest)
        << "replica_id " << replica_id;
  const Process& first = *ranks.processes[0];
  EXPECT_EQ(first.seen.all, alone.seen.all);
  EXPECT_EQ(first.outcome.admitted, alone.outcome.admitted);
  EXPECT_EQ(first.outcome.trained, alone.outcome.trained);
  EXPECT_EQ(first.outcome.replayed, alone.outcome.replayed);
  EXPECT_GT(first.outcome.replayed, 0);
  EXPECT_EQ(first.outcome.untold, alone.outcome.untold);
  EXPECT_EQ(first.outcome.predicted_only, alone.outcome.predicted_only);
  EXPECT_EQ(first.outcome.rejected, alone.outcome.rejected);
  const Reading there = ranks.processes[0]->monitor.read(), here = alone.monitor.read();
  EXPECT_EQ(there.updates, here.updates);
  EXPECT_EQ(there.gradient_age, here.gradient_age);
  EXPECT_EQ(ranks.processes[0]->monitor.tally().counts().trained,
            alone.monitor.tally().counts().trained);
}

TEST(Ranks, DoWhatOneProcessDoesInEverySchedule) {
  for (const std::string& name : schedule_names()) {
    SCOPED_TRACE(name);
    const Schedule schedule = make_schedule(name, {.stages = 4});
    const int workers = int(schedule.workers.size());
    for (int count = 2; count <= workers; ++count)
      expect_as_in_one_process(schedule, deal_workers(workers, count), count);
  }
}

TEST(Ranks, MayHaveAnyWorkersOfAnyStage) {
  const Schedule schedule = make_schedule("partime", {.stages = 4});
  expect_as_in_one_process(schedule, {0, 1, 0, 1}, 2);
  expect_as_in_one_process(schedule, {0, 1, 1, 0}, 2);
}

TEST(Ranks, MayHaveReplicasOfAnyStage) {
  const auto expect = [](int stages, const std::vector<int>& replicas,
                         const std::vector<int>& dealt) {
    const int count = *std::max_element(dealt.begin(), dealt.end()) + 1;
    expect_as_in_one_process(make_schedule("pipedream", {.stages = stages, .replicas = replicas}),
                             dealt, count);
  };
  expect(3, {2, 3, 1}, {0, 0, 1, 1, 1, 0});
  expect(2, {2, 2}, {0, 1, 2, 3});
  expect(2, {3, 1}, {0, 1, 1, 0});
  expect(2, {1, 3}, {0, 0, 1, 2});
  expect(1, {4}, {0, 1, 1, 0});
  expect(3, {2, 3, 2}, {0, 1, 0, 1, 1, 1, 0});
}

TEST(Ranks, LeaveOutTheSameSamples) {
  const std::atomic<std::int64_t> third{3};
  for (const std::string name : {"partime", "1f1b", "2bw"}) {
    expect_as_in_one_process(make_schedule(name, {.stages = 4}), {0, 0, 1, 1}, 2, &third);
  }
}

TEST(Ranks, AllEndWhenOneFailsAndNameIt) {
  for (const int failing : {0, 1, 2}) {
    Ranks ranks(make_schedule("partime", {.stages = 3}), 1000, {0, 1, 2}, 3);
    ranks.run([&](int rank) {
      PipelineOptions options;
      options.before_action = [=](int worker, const Action& action) {
        if (worker == failing && action.sample == 20) throw std::runtime_error("out of paper");
      };
      return options;
    });
    for (int rank = 0; rank < 3; ++rank) {
      EXPECT_EQ(
          ranks.failures[std::size_t(rank)],
          rank == failing ? "out of paper" : "rank " + std::to_string(failing) + ": out of paper");
    }
  }
}

TEST(Ranks, EndWhenOneHearsTheOtherButIsNotHeard) {
  Ranks ranks(make_schedule("partime", {.stages = 2}), 1'000'000, {0, 1}, 2);
  ranks.run([&](int rank) {
    PipelineOptions options;
    options.before_action = [&, rank](int, const Action& action) {
      if (rank == 1 && action.sample == 20) ranks.exchanges[1]->is_mute = true;
    };
    return options;
  });
  for (const int rank : {0, 1})
    EXPECT_EQ(ranks.failures[std::size_t(rank)],
              "rank " + std::to_string(1 - rank) +
                  " is gone: nothing was heard of it for 5 s; the last checkpoint stays");
}

TEST(Ranks, DrainWhenRankZeroIsAskedTo) {
  std::atomic<bool> drain{false};
  Ranks ranks(make_schedule("1f1b", {.stages = 2}), 1'000'000, {0, 1}, 2);
  ranks.run([&](int rank) {
    PipelineOptions options;
    if (rank != 0) return options;
    options.drain = &drain;
    options.before_action = [&](int, const Action& action) { drain = action.sample > 50; };
    return options;
  });
  EXPECT_EQ(ranks.failures, std::vector<std::string>(2));
  const Outcome& outcome = ranks.processes[0]->outcome;
  const std::int64_t replays = (outcome.admitted + 2) / 5;  // samples 2, 7, 12, ...
  EXPECT_EQ(outcome.trained + outcome.untold + outcome.rejected + replays, outcome.admitted);
  EXPECT_LT(outcome.admitted, 100);
}

TEST(Ranks, AreRefusedWhereTheyCannotBe) {
  const Schedule schedule = make_schedule("pipedream", {.stages = 2, .replicas = {1, 2}});
  const auto why = [&](const std::vector<int>& dealt, int ranks) {
    return complaint<std::invalid_argument>([&] { require_ranks(schedule, dealt, ranks); });
  };
  EXPECT_EQ(why({0, 1, 1}, 2), "");
  EXPECT_EQ(why({0, 1, 1}, 4), "4 ranks: the schedule has 3 workers, so 1 to 3");
  EXPECT_EQ(why({0, 1}, 2), "2 workers are dealt, the schedule has 3");
  EXPECT_EQ(why({0, 2, 2}, 3), "rank 1 of 3 has no worker");
  EXPECT_EQ(why({1, 0, 0}, 2), "the first stage must be on rank 0, which has the source");
}

TEST(RankClocks, TheShortestRoundTripTellsHowFarAClockIsAhead) {
  using namespace std::chrono_literals;
  const auto here = [](Clock::duration t) { return Clock::time_point(100s + t); };
  const auto there = [&](Clock::duration t) { return here(t) + 7s; };
  RankClocks mine(2), theirs(2);
  EXPECT_TRUE(theirs.heard(0, mine.beat_for(1, here(0ms)), there(10ms)))
      << "to be answered at once";
  EXPECT_FALSE(theirs.ahead(0));
  EXPECT_FALSE(mine.heard(1, theirs.beat_for(0, there(20ms)), here(50ms)));
  EXPECT_EQ(*mine.ahead(1), 7s - 10ms) << "half of a round trip of 40 ms, which was 10 and 30";
  // A quicker one, which took the same both ways, is right; a slower one says nothing.
  theirs.heard(0, mine.beat_for(1, here(60ms)), there(65ms));
  mine.heard(1, theirs.beat_for(0, there(90ms)), here(95ms));
  EXPECT_EQ(*mine.ahead(1), 7s);
  theirs.heard(0, mine.beat_for(1, here(100ms)), there(101ms));
  mine.heard(1, theirs.beat_for(0, there(110ms)), here(300ms));
  EXPECT_EQ(*mine.ahead(1), 7s);
  EXPECT_LT(std::chrono::abs(*theirs.ahead(0) + 7s), 20ms);
}

TEST(RankClocks, ProcessesOfOneMachineHaveOneClock) {
  using namespace std::chrono_literals;
  const Clock::time_point now(100s);
  RankClocks mine(2, clock_of_this_machine()), theirs(2, clock_of_this_machine()), elsewhere(2, 7);
  mine.heard(1, theirs.beat_for(0, now), now + 30ms);
  EXPECT_EQ(*mine.ahead(1), 0ms);
  mine.heard(0, elsewhere.beat_for(0, now), now + 30ms);
  EXPECT_FALSE(mine.ahead(0));
}

}  // namespace
}  // namespace millrace::engine
