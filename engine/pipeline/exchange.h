#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace millrace::engine {

/// Kinds of messages between ranks. Each has its own tags and buffers.
enum class Cargo : std::uint8_t {
  activation,  ///< with the sample's SampleInfo
  gradient,
  target,      ///< from the feed to the stages that take a loss
  prediction,  ///< with the loss, from the last stage to the observer
  release,     ///< of a slot, to the feed: no bytes
  sample,      ///< from the feed to a replica of the first stage
  meeting,     ///< of a stage's replicas before an update: the sender's gradient
  turn,        ///< to the last stage's replica with the next sample: it may predict
};
constexpr int kCargos = 8;
constexpr bool is_transfer(Cargo cargo) {
  return cargo == Cargo::activation || cargo == Cargo::gradient;
}

/// Message latency of one kind from one rank to another.
struct LinkTime {
  Cargo cargo = Cargo::activation;
  int stage = 0;  ///< of the sender
  int from = 0, to = 0;
  std::int64_t bytes = 0;     ///< per message
  bool apart = false;         ///< tensors go from GPU to GPU separately
  std::int64_t messages = 0;  ///< timed
  double ms = 0;              ///< median from the send until the receiver has the message
};

/// Messages between the processes of one run, its ranks: 0 to ranks() - 1, all started with the
/// same config. Needs no MPI. A port carries messages of one size between the same buffers; it
/// delivers in order and allocates nothing. A letter is a message of any size; letters of one kind
/// between two ranks arrive in order. No call waits for another rank. Messages progress while both
/// sides make calls. Callers hold mutex(), except for rank() and ranks(). Throws std::runtime_error
/// if the transport fails. A call that does not return for 6 s ends the process with status 1.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  std::mutex& mutex() { return *mutex_; }
  /// The latest latency of each kind of message on each route; on rank 0, of all ranks.
  std::vector<LinkTime> times;

  using Parts = std::vector<std::span<std::byte>>;
  /// Opens a port to or from `peer`, which opens its side with the same tag (0 to kTags - 1) and
  /// parts of equal sizes. The buffers must outlive it.
  virtual int open(int peer, int tag, const Parts& parts, bool sends) = 0;
  int open_to(int peer, int tag, const Parts& parts) { return open(peer, tag, parts, true); }
  int open_from(int peer, int tag, const Parts& parts) { return open(peer, tag, parts, false); }
  /// Closes all ports; messages in flight to this rank are lost.
  virtual void close_ports() = 0;
  /// Sends the port's buffers, or receives into them. The port must be over().
  virtual void start(int port) = 0;
  /// Whether nothing is in flight, so the caller may use the port's buffers.
  virtual bool over(int port) = 0;
  /// A receiving port that was filled since it was started, reported once; -1: none.
  virtual int arrived() = 0;

  struct Letter {
    int from = 0;
    std::string text;
  };
  enum class About { pipeline, state, wires, run };
  static constexpr int kAbouts = 4;
  virtual void post(int to, About about, std::string text) = 0;
  void post_to_others(About about, const std::string& text) {
    for (int other = 0; other < ranks(); ++other) {
      if (other != rank()) post(other, about, text);
    }
  }
  virtual std::optional<Letter> letter(About about) = 0;
  /// Whether all letters posted here will arrive without further calls.
  virtual bool all_posted() = 0;

  /// The ranks of equal `colour` as their own exchange, in unchanged order. A collective call.
  virtual std::unique_ptr<Exchange> part(int) { throw std::logic_error("it has no parts"); }

  /// Call when a rank is lost: from then on, closing ports and exiting wait for no other rank.
  virtual void abandon() = 0;

  /// Global numbers of its ranks, if this is a part; otherwise empty.
  std::vector<int> numbers;
  std::string name(int rank) const {
    return "rank " + std::to_string(numbers.empty() ? rank : numbers[std::size_t(rank)]);
  }

  /// Called, if set, as soon as the first stage's worker knows that no more samples are admitted.
  std::function<void()> on_end_of_stream;
  /// Called, if set, when this rank's workers have ended, before waiting for those of others.
  std::function<void(bool failed)> on_workers_ended;

  /// Data parallelism: `count` copies of this exchange's pipeline train one network. add_up() is an
  /// all-reduce (sum) of a stage's `numbers`, in place and bit-identical on all ranks. Blocks.
  struct Copies {
    int count = 1;
    std::function<void(std::span<float> numbers, int stage)> add_up;
  } copies;
  /// All-reduce over the ranks that share a stage's modules (their gradients differ); empty: none.
  std::function<void(std::span<float> numbers, int stage)> add_up_parts;

  static constexpr int kTags = 1 << 20;
  static constexpr int kFeedTag = kTags / 2;  ///< for samples; sums use the tags below

 protected:
  Exchange() : mutex_(std::make_shared<std::mutex>()) {}
  /// Shares the mutex of `whole`, an exchange over the same transport.
  explicit Exchange(const Exchange& whole) : mutex_(whole.mutex_) {}

 private:
  const std::shared_ptr<std::mutex> mutex_;
};

}  // namespace millrace::engine
