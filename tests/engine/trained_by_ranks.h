// A run spread over ranks that are threads of the test.
#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <thread>
#include <vector>

#include "capture/wire.h"
#include "tests/engine/thread_exchange.h"
#include "tests/engine/trained.h"

namespace millrace::engine {

/// Rank 0's weights and losses of a run over `count` ranks. `spoiled`: as the feed has it.
inline Trained by_ranks(const TrainerOptions& options, std::int64_t samples, int count,
                        const std::function<bool(std::int64_t)>& spoiled = {}) {
  const auto sea = std::make_shared<Sea>();
  Trained result;
  std::mutex recording;  // processes record beside each other, threads must not
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
      SampleFeed feed(options.sample, rank == 0 ? samples : 0);
      feed.spoiled = spoiled;
      LossLog log;
      const Outcome outcome = trainer.run(feed, rank == 0 ? &log : nullptr, {});
      EXPECT_EQ(outcome.admitted, samples);
      if (rank != 0) {
        EXPECT_FALSE(trainer.follow());
        return;
      }
      trainer.dismiss_ranks();
      result = {trainer.state(), log.losses};
    });
  }
  for (std::thread& thread : threads) thread.join();
  return result;
}

}  // namespace millrace::engine
