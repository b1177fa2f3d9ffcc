#include "engine/pipeline/rank_options.h"

#include <algorithm>

namespace millrace::engine {

std::vector<int> deal_workers(int workers, int ranks) {
  std::vector<int> rank_of_worker;
  for (int worker = 0; worker < workers; ++worker)
    rank_of_worker.push_back(int(std::int64_t(worker) * ranks / workers));
  return rank_of_worker;
}

void require_ranks(const Schedule& schedule, const std::vector<int>& rank_of_worker, int ranks) {
  const auto fail = [](const std::string& what) { throw std::invalid_argument(what); };
  const int workers = int(schedule.workers.size());
  if (ranks > workers) {
    fail(std::to_string(ranks) + " ranks: the schedule has " + std::to_string(workers) +
         " workers, so 1 to " + std::to_string(workers));
  }
  if (int(rank_of_worker.size()) != workers) {
    fail(std::to_string(rank_of_worker.size()) +
         " workers are assigned to ranks, but the schedule has " + std::to_string(workers));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (std::find(rank_of_worker.begin(), rank_of_worker.end(), rank) == rank_of_worker.end())
      fail("rank " + std::to_string(rank) + " of " + std::to_string(ranks) + " has no worker");
  }
  for (const int rank : rank_of_worker) {
    if (rank < 0 || rank >= ranks)
      fail("rank " + std::to_string(rank) +
           " is out of range; number of ranks: " + std::to_string(ranks));
  }
  if (rank_of_worker[std::size_t(workers_of_replicas(schedule).front())] != 0)
    fail("the first stage must be on rank 0, which has the source");
}

}  // namespace millrace::engine
