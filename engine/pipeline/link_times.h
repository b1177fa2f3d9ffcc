// What messages between ranks take.
#pragma once

#include <cstdint>
#include <mutex>
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

}  // namespace millrace::engine
