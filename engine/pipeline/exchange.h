// Messages between the processes of one run. Needs no MPI.
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

/// What crosses between ranks, each with its own tags and places.
enum class Cargo : std::uint8_t {
  activation,  ///< with the sample's SampleInfo
  gradient,
  target,      ///< from the feed to who takes a loss
  prediction,  ///< with the loss, from the last stage to the observer
  release,     ///< of a slot, to the feed: no bytes
  sample,      ///< from the feed to a replica of the first stage
  meeting,     ///< of a stage's replicas before an update: the giver's gradient
  turn,        ///< to predict, for the last stage's replica with the next sample
};
constexpr int kCargos = 8;
/// Whether it crosses a cut.
constexpr bool is_transfer(Cargo cargo) {
  return cargo == Cargo::activation || cargo == Cargo::gradient;
}

/// Messages of one kind from one rank to another.
struct LinkTime {
  Cargo cargo = Cargo::activation;
  int stage = 0;  ///< that gives it
  int from = 0, to = 0;
  std::int64_t bytes = 0;     ///< of a message
  bool apart = false;         ///< what it is about goes from GPU to GPU by itself
  std::int64_t messages = 0;  ///< timed
  double ms = 0;              ///< median from sending to where the receiver has it in hand
};

/// The latest word on each. Thread-safe.
class LinkTimes {
 public:
  void note(const LinkTime& time) {
    const std::lock_guard lock(mutex_);
    for (LinkTime& known : all_) {
      if (known.cargo == time.cargo && known.stage == time.stage && known.from == time.from &&
          known.to == time.to) {
        known = time;
        return;
      }
    }
    all_.push_back(time);
  }
  std::vector<LinkTime> read() const {
    const std::lock_guard lock(mutex_);
    return all_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<LinkTime> all_;
};

/// A run's processes are its ranks, 0 to ranks() - 1, each started with the same config. A port
/// carries messages of one size from the same places to the same places again and again, and
/// allocates nothing; its messages arrive in order. A letter has any size; letters of one kind
/// between two ranks arrive in order. No call waits for another rank. Messages move on while some
/// call is made on both sides. Whoever calls anything but rank() and ranks() holds mutex(). Throws
/// std::runtime_error where the transport fails. A call that does not return for 6 s ends the
/// process with 1.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  std::mutex& mutex() { return *mutex_; }
  /// What the pipeline's messages take; on rank 0 those of all ranks. Any thread.
  LinkTimes& times() { return times_; }

  /// Where a message's bytes lie.
  using Parts = std::vector<std::span<std::byte>>;
  /// A port to or from `peer`, whose side names the same tag (0 to kTags - 1) and has parts of the
  /// same sizes. What they lie in outlives it.
  virtual int open_to(int peer, int tag, const Parts& parts) = 0;
  virtual int open_from(int peer, int tag, const Parts& parts) = 0;
  /// Closes all; messages to this rank that are under way are lost.
  virtual void close_ports() = 0;
  /// Sends what lies in the port's bytes, or is ready to receive into them. It must be over().
  virtual void start(int port) = 0;
  /// Whether a port's bytes are the caller's: nothing is under way.
  virtual bool over(int port) = 0;
  /// A receiving port that was filled since it was started; -1: none is. Each is told once.
  virtual int arrived() = 0;

  struct Letter {
    int from = 0;
    std::string text;
  };
  enum class About { pipeline, state, wires, run };  ///< whose letter it is
  static constexpr int kAbouts = 4;
  virtual void post(int to, About about, std::string text) = 0;
  void post_to_others(About about, const std::string& text) {
    for (int other = 0; other < ranks(); ++other) {
      if (other != rank()) post(other, about, text);
    }
  }
  virtual std::optional<Letter> letter(About about) = 0;
  /// Whether every letter posted here is on its way without this process's help.
  virtual bool all_posted() = 0;

  /// The ranks of equal `colour` as an exchange of their own, in their order; all call it at once.
  virtual std::unique_ptr<Exchange> part(int) { throw std::logic_error("it has no parts"); }

  /// A rank is lost: nobody is waited for when ports close, and when this process ends.
  virtual void abandon() = 0;

  /// Of its ranks among all that were launched; empty: they are all.
  std::vector<int> numbers;
  std::string name(int rank) const {
    return "rank " + std::to_string(numbers.empty() ? rank : numbers[std::size_t(rank)]);
  }

  /// Called, where it is set, as soon as the first stage's worker knows that no more is admitted.
  std::function<void()> on_end_of_stream;
  /// Called, where it is set, when this rank's workers have ended, before others' are waited for.
  std::function<void(bool failed)> on_workers_ended;

  /// Where copies of this exchange's pipeline learn one network: how many, and what adds up
  /// `numbers` of a stage over all, in place, in an order that gives each the same bits. Blocks.
  struct Copies {
    int count = 1;
    std::function<void(std::span<float> numbers, int stage)> add_up;
  } copies;
  /// The same over the ranks that share a stage's modules, whose gradients differ. Empty: none.
  std::function<void(std::span<float> numbers, int stage)> add_up_parts;

  static constexpr int kTags = 1 << 20;
  static constexpr int kFeedTag = kTags / 2;  ///< for samples; sums have those below

 protected:
  Exchange() : mutex_(std::make_shared<std::mutex>()) {}
  /// Of the same transport, and so under the same mutex.
  explicit Exchange(const Exchange& whole) : mutex_(whole.mutex_) {}

 private:
  const std::shared_ptr<std::mutex> mutex_;
  LinkTimes times_;
};

}  // namespace millrace::engine
