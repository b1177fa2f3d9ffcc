#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

#include "capture/wire.h"
#include "tests/engine/thread_exchange.h"
#include "tests/engine/trained.h"

namespace millrace::engine {

/// Runs `work` on each of `count` ranks, all at once. The trainers record one after another:
/// processes may record at the same time, threads must not.
inline void on_ranks(const TrainerOptions& options, int count,
                     const std::function<void(int rank, Trainer&)>& work) {
  const auto sea = std::make_shared<Sea>();
  std::mutex recording;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadExchange exchange(sea, rank, count);
      TrainerOptions mine = options;
      mine.exchange = &exchange;
      mine.gpus.assign(std::size_t(count), capture::gpus_here());
      std::unique_lock alone(recording);
      Trainer trainer(mine);
      trainer.prepare();
      alone.unlock();
      work(rank, trainer);
      if (rank == 0) return trainer.dismiss_ranks();
      EXPECT_FALSE(trainer.follow());
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Rank 0's weights and losses of a run over `count` ranks. `spoiled`: see SampleFeed.
inline Trained by_ranks(const TrainerOptions& options, std::int64_t samples, int count,
                        const std::function<bool(std::int64_t)>& spoiled = {},
                        const PipelineOptions& how = {}) {
  Trained result;
  on_ranks(options, count, [&](int rank, Trainer& trainer) {
    SampleFeed feed(options.sample, rank == 0 ? samples : 0);
    feed.spoiled = spoiled;
    LossLog log;
    const Outcome outcome = trainer.run(feed, rank == 0 ? &log : nullptr, how);
    EXPECT_EQ(outcome.admitted, samples);
    if (rank == 0) result = {trainer.state(), log.losses};
  });
  return result;
}

}  // namespace millrace::engine
