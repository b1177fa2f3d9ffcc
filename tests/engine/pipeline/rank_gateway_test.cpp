// A run over several ranks equals one process; its steps compute nothing. Run by ThreadSanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "engine/pipeline/rank_pulse.h"
#include "engine/pipeline/wait_forecast.h"
#include "engine/schedule/registry.h"
#include "tests/complaint.h"
#include "tests/engine/fake_pipeline.h"
#include "tests/engine/thread_exchange.h"

namespace millrace::engine {
namespace {

using namespace std::chrono_literals;

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
      std::int64_t half, sample;
    };
    const auto sum = std::make_shared<Sum>();
    return {.parts = {std::as_writable_bytes(std::span(sum.get(), 1))},
            .pack =
                [=, this](int from, int) {
                  const std::int64_t half = memory_.updates[std::size_t(from)] % 2;
                  *sum = {half, memory_.sums[std::size_t(from)][std::size_t(half)]};
                },
            .unpack =
                [=, this](int from, int to) {
                  memory_.met[std::size_t(from)][std::size_t(to)][std::size_t(sum->half)] =
                      sum->sample;
                }};
  }
  std::int64_t& at(Cargo cargo, int stage, int slot) {
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

/// A run over ranks that are threads of the test.
struct Ranks {
  Ranks(const Schedule& of, std::int64_t samples, std::vector<int> dealt, int count)
      : schedule(of), rank_of_worker(std::move(dealt)) {
    for (int rank = 0; rank < count; ++rank) {
      exchanges.push_back(std::make_unique<ThreadExchange>(sea, rank, count));
      processes.push_back(std::make_unique<FakePipeline>(
          schedule, samples, [&](int replica_id) { return rank_of(replica_id) == rank; }, true));
    }
  }
  /// Runs each rank with `options(rank)`; stores exceptions.
  void run(const std::function<PipelineOptions(int rank)>& options) {
    std::vector<std::thread> threads;
    failures.assign(processes.size(), "");
    outcomes.resize(processes.size());
    for (std::size_t rank = 0; rank < processes.size(); ++rank) {
      threads.emplace_back([&, rank] {
        MemoryFreight freight(processes[rank]->memory);
        const RankOptions ranks{exchanges[rank].get(), &freight, rank_of_worker};
        processes[rank]->ranks = &ranks;
        try {
          outcomes[rank] = processes[rank]->run(options(int(rank)));
        } catch (const std::exception& error) {
          failures[rank] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  int rank_of(int replica_id) const {
    return rank_of_worker[std::size_t(workers_of_replicas(schedule)[std::size_t(replica_id)])];
  }

  const Schedule schedule;
  const std::vector<int> rank_of_worker;
  const std::shared_ptr<Sea> sea = std::make_shared<Sea>();
  std::vector<std::unique_ptr<ThreadExchange>> exchanges;
  std::vector<std::unique_ptr<FakePipeline>> processes;
  std::vector<Outcome> outcomes;
  std::vector<std::string> failures;
};

void expect_as_in_one_process(const Schedule& schedule, const std::vector<int>& dealt, int count,
                              const std::atomic<std::int64_t>* train_every = nullptr) {
  constexpr std::int64_t kSamples =
      96;  // whole minibatches: for others it is unknown how far they get
  FakePipeline alone(schedule, kSamples, {}, true);
  const Outcome expected = alone.run({.train_every = train_every});
  Ranks ranks(schedule, kSamples, dealt, count);
  ranks.run([&](int rank) {
    PipelineOptions options = random_sleeps();
    if (rank == 0) options.train_every = train_every;
    return options;
  });
  for (const std::string& failure : ranks.failures) EXPECT_EQ(failure, "");
  for (int replica_id = 0; replica_id < schedule.replica_ids(); ++replica_id) {
    const FakePipeline& process = *ranks.processes[std::size_t(ranks.rank_of(replica_id))];
    EXPECT_EQ(process.steps[std::size_t(replica_id)]->noted,
              alone.steps[std::size_t(replica_id)]->noted)
        << "replica_id " << replica_id;
  }
  FakePipeline& first = *ranks.processes[0];
  EXPECT_EQ(first.seen.all, alone.seen.all);
  const Outcome& got = ranks.outcomes[0];
  for (const auto count_of : kCountOfFate) EXPECT_EQ(got.*count_of, expected.*count_of);
  EXPECT_EQ(got.admitted, expected.admitted);
  EXPECT_EQ(got.rejected, expected.rejected);
  EXPECT_GT(got.replayed, 0);
  const Reading there = first.monitor.read(), here = alone.monitor.read();
  EXPECT_EQ(there.updates, here.updates);
  EXPECT_EQ(there.gradient_age, here.gradient_age);
  EXPECT_EQ(first.monitor.tally().counts().trained, alone.monitor.tally().counts().trained);
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
              "lost rank " + std::to_string(1 - rank) +
                  ": no message for 5 s; the last checkpoint is kept");
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
  const Outcome& outcome = ranks.outcomes[0];
  const std::int64_t replays = (outcome.admitted + 2) / 5;  // samples 2, 7, 12, ...
  EXPECT_EQ(outcome.fresh() + outcome.rejected + replays, outcome.admitted);
  EXPECT_LT(outcome.admitted, 100);
}

TEST(Ranks, AreRefusedWhereTheyCannotBe) {
  const Schedule schedule = make_schedule("pipedream", {.stages = 2, .replicas = {1, 2}});
  const auto why = [&](const std::vector<int>& dealt, int ranks) {
    return complaint<std::invalid_argument>([&] { require_ranks(schedule, dealt, ranks); });
  };
  EXPECT_EQ(why({0, 1, 1}, 2), "");
  EXPECT_EQ(why({0, 1, 1}, 4), "4 ranks: the schedule has 3 workers, so 1 to 3");
  EXPECT_EQ(why({0, 1}, 2), "2 workers are assigned to ranks, but the schedule has 3");
  EXPECT_EQ(why({0, 2, 2}, 3), "rank 1 of 3 has no worker");
  EXPECT_EQ(why({1, 0, 0}, 2), "the first stage must be on rank 0, which has the source");
}

TEST(RankClocks, TheShortestRoundTripTellsHowFarAClockIsAhead) {
  const auto here = [](Clock::duration t) { return Clock::time_point(100s + t); };
  const auto there = [&](Clock::duration t) { return here(t) + 7s; };
  RankClocks mine(2), theirs(2);
  EXPECT_TRUE(theirs.heard(0, mine.beat_for(1, here(0ms)), there(10ms)))
      << "to be answered at once";
  EXPECT_FALSE(theirs.ahead(0));
  EXPECT_FALSE(mine.heard(1, theirs.beat_for(0, there(20ms)), here(50ms)));
  EXPECT_EQ(*mine.ahead(1), 7s - 10ms) << "half of a round trip of 40 ms, which was 10 and 30";
  // A quicker round trip, with equal halves, is right; a slower one says nothing.
  theirs.heard(0, mine.beat_for(1, here(60ms)), there(65ms));
  mine.heard(1, theirs.beat_for(0, there(90ms)), here(95ms));
  EXPECT_EQ(*mine.ahead(1), 7s);
  theirs.heard(0, mine.beat_for(1, here(100ms)), there(101ms));
  mine.heard(1, theirs.beat_for(0, there(110ms)), here(300ms));
  EXPECT_EQ(*mine.ahead(1), 7s);
  EXPECT_LT(std::chrono::abs(*theirs.ahead(0) + 7s), 20ms);
}

TEST(RankClocks, ProcessesOfOneMachineHaveOneClock) {
  const Clock::time_point now(100s);
  RankClocks mine(2, clock_of_this_machine()), theirs(2, clock_of_this_machine()), elsewhere(2, 7);
  mine.heard(1, theirs.beat_for(0, now), now + 30ms);
  EXPECT_EQ(*mine.ahead(1), 0ms);
  mine.heard(0, elsewhere.beat_for(0, now), now + 30ms);
  EXPECT_FALSE(mine.ahead(0));
}

/// Two actions before a period of two.
Program program() {
  const Action any;
  return {.prologue = {any, any}, .period = {any, any}};
}

TEST(WaitForecast, TellsLessThanTheShortestOfTheLastWaitsBeforeTheSameAction) {
  WaitForecast waits(program());
  for (int time = 0; time < 4; ++time) {
    EXPECT_EQ(waits.at_least(2), 0ns) << "four waits are needed to know, not " << time;
    waits.waited(2 + 2 * time, time == 1 ? 8ms : 16ms);
  }
  EXPECT_EQ(waits.at_least(4), 7500us - 100us);
  EXPECT_EQ(waits.at_least(5), 0ns) << "another action's";
  waits.waited(2, 16ms);
  waits.waited(2, 16ms);
  EXPECT_EQ(waits.at_least(2), 15ms - 100us) << "the short one is long ago";
  waits.waited(2, 0ms);
  EXPECT_EQ(waits.at_least(2), 0ns);
}

TEST(WaitForecast, WhoeverComesTooLateIsToldLessUntilHeIsInTime) {
  WaitForecast waits(program());
  for (int time = 0; time < 4; ++time) waits.waited(2, 10ms);
  constexpr auto kComes = 3ms;
  int late = 0;
  for (; waits.at_least(2) > kComes; ++late)
    waits.waited(2, std::max<std::chrono::nanoseconds>(kComes, waits.at_least(2)));
  EXPECT_GT(late, 0);
  EXPECT_LT(late, 30);
}

TEST(WaitForecast, KnowsNothingOfWhatIsDoneOnce) {
  WaitForecast waits(program());
  for (int time = 0; time < 8; ++time) waits.waited(1, 10ms);
  EXPECT_EQ(waits.at_least(1), 0ns);
  EXPECT_EQ(waits.at_least(3), 0ns);
}

}  // namespace
}  // namespace millrace::engine
