#include "engine/pipeline/rank_options.h"

#include <algorithm>

#include "engine/format.h"

namespace millrace::engine {

std::vector<int> deal_workers(int workers, int ranks) {
  std::vector<int> rank_of_worker;
  for (int worker = 0; worker < workers; ++worker)
    rank_of_worker.push_back(int(std::int64_t(worker) * ranks / workers));
  return rank_of_worker;
}

void require_ranks(const Schedule& schedule, const std::vector<int>& rank_of_worker, int ranks) {
  const int workers = int(schedule.workers.size());
  require_that(ranks <= workers, "%d ranks: the schedule has %d workers, so 1 to %d", ranks,
               workers, workers);
  require_that(int(rank_of_worker.size()) == workers,
               "%zu workers are assigned to ranks, but the schedule has %d", rank_of_worker.size(),
               workers);
  for (int rank = 0; rank < ranks; ++rank) {
    require_that(std::ranges::find(rank_of_worker, rank) != rank_of_worker.end(),
                 "rank %d of %d has no worker", rank, ranks);
  }
  for (const int rank : rank_of_worker) {
    require_that(rank >= 0 && rank < ranks, "rank %d is out of range; number of ranks: %d", rank,
                 ranks);
  }
  require_that(rank_of_worker[std::size_t(workers_of_replicas(schedule).front())] == 0,
               "the first stage must be on rank 0, which has the source");
}

}  // namespace millrace::engine
