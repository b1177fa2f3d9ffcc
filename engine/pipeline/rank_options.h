// How a pipeline is spread over processes, and what the caller does for its messages.
#pragma once

#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "engine/pipeline/exchange.h"
#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// A rank is gone: what it had is lost, and the others can't go on.
struct RankLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What a message carries besides its head. Used under Exchange::mutex(); the schedule's tokens make
/// what it touches the caller's by then.
struct Payload {
  /// Where the bytes lie for as long as this lives; both sides have parts of the same sizes. A
  /// receiver is ready for the slot's next message while a stage may still read the last one's:
  /// none is sent before the schedule has freed the slot.
  Exchange::Parts parts{};
  /// Into the parts, before they are sent, and out of them, once they have arrived, between two
  /// replicas; empty: nothing to do.
  std::function<void(int from, int to)> pack{}, unpack{};
};

/// Moves tensors into messages and out of them. Called under Exchange::mutex() unless said
/// otherwise; the schedule's tokens make what it touches the caller's by then.
class Freight {
 public:
  virtual ~Freight() = default;
  /// The payload of a message, but of a release or a turn, for as long as the freight lives: of the
  /// sample in `slot`, or of a meeting what replica `from` has for its next update, where the next
  /// one of `to` finds it. `stage`: the sender's; 0 for the feed and the observer. `sends`: from
  /// here.
  virtual Payload payload(Cargo cargo, int stage, int slot, bool sends) = 0;
  /// Whether a sample's target is its input, so that one message brings both.
  virtual bool target_is_input() const = 0;
  /// Blocks until what a stage last gave for the sample in `slot` lies in host memory.
  virtual void await(Cargo cargo, int stage, int slot) = 0;
  /// The gradient that the next update of a stage here applies, followed by room for `more`
  /// numbers. By the stage's worker, not under the mutex, like set_gradient().
  virtual std::vector<float>& gradient(int stage, std::size_t more) = 0;
  /// Has the stage apply 1 / `copies` of what gradient() has become.
  virtual void set_gradient(int stage, int copies) = 0;

  /// The run has failed somewhere: stop waiting for transfers between devices.
  virtual void abandon() {}
};

/// How a schedule is spread over processes.
struct RankOptions {
  Exchange* exchange = nullptr;
  Freight* freight = nullptr;
  std::vector<int> rank_of_worker;
  int run = 0;  ///< 0, 1, ...: the same on every rank, another for each run
  /// What a rank reports to rank 0 beside its meters twice a second, and what receives it there.
  /// Any thread, under Exchange::mutex().
  std::function<std::string()> facts;
  std::function<void(std::string_view)> take_facts;
};

/// The rank of each of `workers`: dealt in order, as evenly as possible.
std::vector<int> deal_workers(int workers, int ranks);

/// Throws std::invalid_argument unless every rank has a worker of `schedule` and the first stage
/// (with replicas: the first replica) is on rank 0.
void require_ranks(const Schedule& schedule, const std::vector<int>& rank_of_worker, int ranks);

}  // namespace millrace::engine
