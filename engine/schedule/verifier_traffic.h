// What passes between the workers of a schedule that is verified: messages, turns, buffers.
#pragma once

#include <deque>    // links
#include <map>      // links by their ends
#include <string>   // what is wrong
#include <utility>  // ends

#include "engine/schedule/happens_before.h"
#include "engine/schedule/schedule.h"

namespace millrace::engine {

/// Thrown from within a walk; verify() adds where.
struct Wrong {
  std::string what;
};

/// Lets a walk's actions take only what has come, and says when a buffer is read too late or
/// written too soon for some timing. Every call is made for the action that `worker` is at. Throws
/// Wrong.
class Traffic {
 public:
  explicit Traffic(const Schedule& schedule)
      : schedule_(schedule), order_(schedule.workers.size()) {}

  /// `worker` ends its action.
  void pass(int worker) { order_.pass(worker); }

  /// A message from `stage` about `sample`, down to the next stage or up to the one before.
  void send_down(int worker, int stage, std::int64_t sample) { send(worker, down_, stage, sample); }
  void send_up(int worker, int stage, std::int64_t sample) { send(worker, up_, stage - 1, sample); }
  // What came for `stage`; false if nothing did yet.
  bool receive_from_above(int worker, int stage, std::int64_t sample) {
    return receive(worker, down_, stage - 1, sample);
  }
  bool receive_from_below(int worker, int stage, std::int64_t sample) {
    return receive(worker, up_, stage, sample);
  }

  /// False until the slot's last sample has left every stage; then the feed writes the new one.
  bool admit(int worker, std::int64_t sample);
  /// `sample` leaves the worker's stage.
  void release(int worker, std::int64_t sample) { released_[sample].push_back(order_.now(worker)); }
  /// Among replicas: samples have their turns in order.
  bool has_turn(int stage, std::int64_t sample) {
    return sample == std::int64_t(turns_[stage].size());
  }
  void take_turn(int worker, int stage);
  /// Among replicas: a gradient is complete for update number `update`.
  void post(int worker, int stage, std::int64_t update) {
    posts_[{stage, update}].push_back(order_.now(worker));
  }
  /// False until all replicas have posted; then their gradients are read.
  bool meet(int worker, int stage, std::int64_t update);

  void write_activation(int worker, int stage, std::int64_t sample) {
    write(worker, activations_, stage, sample);
  }
  void write_gradient(int worker, int stage, std::int64_t sample) {
    write(worker, gradients_, stage, sample);
  }
  void read_activation(int worker, int stage, std::int64_t sample) {
    read(worker, activations_, stage, sample);
  }
  void read_gradient(int worker, int stage, std::int64_t sample) {
    read(worker, gradients_, stage, sample);
  }
  /// The feed's input and target.
  void read_sample(int worker, std::int64_t sample) { read(worker, inputs_, 0, sample); }
  /// What `stage` was given of the sample and looks at again as it goes backward.
  void read_inputs(int worker, int stage, std::int64_t sample);
  /// The sum that `unit` adds up for update number `update` begins.
  void write_sum(int worker, int unit, std::int64_t update);

 private:
  struct Message {
    std::int64_t sample;
    Knowledge knowledge;
  };
  /// By the units that send and take.
  using Links = std::map<std::pair<int, int>, std::deque<Message>>;

  /// The link between `upper` and the stage after it that `sample` goes over.
  std::deque<Message>& link(Links& links, int upper, std::int64_t sample);
  void send(int worker, Links& links, int upper, std::int64_t sample);
  bool receive(int worker, Links& links, int upper, std::int64_t sample);
  void read(int worker, Slots& slots, int owner, std::int64_t sample);
  void write(int worker, Slots& slots, int owner, std::int64_t sample);

  const Schedule& schedule_;
  HappensBefore order_;
  Links down_, up_;
  std::map<int, std::vector<Knowledge>> turns_;              ///< by stage: of samples
  std::map<std::int64_t, std::vector<Knowledge>> released_;  ///< by sample: one a stage
  std::map<std::pair<int, std::int64_t>, std::vector<Knowledge>> posts_;  ///< stage, update
  Slots inputs_{order_}, activations_{order_}, gradients_{order_}, sums_{order_};
};

}  // namespace millrace::engine
