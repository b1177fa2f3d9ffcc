#pragma once

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/format.h"
#include "engine/pipeline/exchange.h"
#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// A rank is gone with its state, so the others cannot go on.
struct RankLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A message's body. Under Exchange::mutex(); tokens make the caller the only user of its memory.
struct Payload {
  /// The buffers, valid for as long as this lives; both sides have parts of equal sizes. A receive
  /// may start while a stage reads the slot's last message: the next is not sent until it is free.
  Exchange::Parts parts{};
  /// Copy into the parts before a send, and out of them after a receive; may be empty.
  std::function<void(int from, int to)> pack{}, unpack{};
};

/// Moves tensors into and out of messages. Called under Exchange::mutex(), unless said otherwise.
class Freight {
 public:
  virtual ~Freight() = default;
  /// The payload of a message other than a release or a turn, valid as long as the freight: for the
  /// sample in `slot`; for a meeting, replica `from`'s gradient for the next update of `to`.
  /// `stage`: the sender's; 0 for feed and observer. `sends`: from here.
  virtual Payload payload(Cargo cargo, int stage, int slot, bool sends) = 0;
  /// Whether the target is the input, so that one message brings both.
  virtual bool target_is_input() const = 0;
  /// Blocks until a stage's latest output for the sample in `slot` is in host memory.
  virtual void await(Cargo cargo, int stage, int slot) = 0;
  /// The gradient of a local stage's next update, followed by room for `more` numbers. Called by
  /// the stage's worker without the mutex, like set_gradient().
  virtual std::vector<float>& gradient(int stage, std::size_t more) = 0;
  /// Makes the stage apply 1 / `copies` of gradient(), which the caller has changed.
  virtual void set_gradient(int stage, int copies) = 0;

  /// The run has failed: stop waiting for transfers between devices.
  virtual void abandon() {}
};

struct RankOptions {
  Exchange* exchange = nullptr;
  Freight* freight = nullptr;
  std::vector<int> rank_of_worker;
  int run = 0;  ///< 0, 1, ...: counts runs, equal on every rank
  /// A rank's report to rank 0, twice a second and at the end, besides its meters; its receiver
  /// there. Any thread, under Exchange::mutex().
  std::function<std::string()> facts;
  std::function<void(std::string_view)> take_facts;
};

/// The rank of each worker: contiguous, as even as possible.
inline std::vector<int> deal_workers(int workers, int ranks) {
  std::vector<int> rank_of_worker;
  for (int worker = 0; worker < workers; ++worker)
    rank_of_worker.push_back(int(std::int64_t(worker) * ranks / workers));
  return rank_of_worker;
}

/// Throws std::invalid_argument unless every rank has a worker, and rank 0 stage 0's first replica.
inline void require_ranks(const Schedule& schedule, const std::vector<int>& rank_of_worker,
                          int ranks) {
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
