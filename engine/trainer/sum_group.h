#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/monitor/clock.h"
#include "engine/pipeline/exchange.h"
#include "engine/pipeline/rank_options.h"
#include "engine/pipeline/rank_pulse.h"
#include "stages/tensor_split.h"

namespace millrace::engine {

/// All-reduce of ranks that share modules, or of copies' gradients. Each sends its part to all
/// others and adds up all parts in the order of ranks, so that all get the same bits: two ranks
/// send as much as in a ring, in one trip instead of two. Thread-safe, with one thread per place.
class SumGroup final : public stages::Reducer {
 public:
  /// `exchange`: of these ranks alone; must outlive this.
  explicit SumGroup(Exchange& exchange) : exchange_(exchange) {}

  ~SumGroup() override {
    const std::lock_guard lock(exchange_.mutex());
    exchange_.close_ports();
  }

  /// Throws RankLost if a rank was silent for 6 s, std::runtime_error if one has failed. If one has
  /// ended, no rank trains on this sample, and there is no sum.
  void add_up(std::span<float> numbers, int place) override {
    std::unique_lock lock(exchange_.mutex());
    Sum& sum = open(place, numbers.size());
    std::copy(numbers.begin(), numbers.end(), sum.mine.begin());
    for (const auto& [rank, peer] : sum.peers) exchange_.start(peer.to);
    Clock::time_point left{};
    for (int looks = 0; !all_over(sum); ++looks) {
      if (looks % 64 == 0) {
        require_alive();
        if (any_left_ && left == Clock::time_point{}) left = Clock::now();
        if (any_left_ && Clock::now() - left > kUnderWay) return;
      }
      lock.unlock();
      if (looks > kLooks + kYields) {
        std::this_thread::sleep_for(std::chrono::microseconds(20));
      } else if (looks > kLooks) {
        std::this_thread::yield();
      }
      lock.lock();
    }
    for (int rank = 0; rank < exchange_.ranks(); ++rank) {
      const bool own = rank == exchange_.rank();
      const std::vector<float>& part = own ? sum.mine : sum.peers.at(rank).numbers;
      if (rank == 0) {
        std::copy(part.begin(), part.end(), numbers.begin());
      } else {
        for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] += part[i];
      }
    }
    for (const auto& [rank, peer] : sum.peers) exchange_.start(peer.from);
  }
  /// Sends a heartbeat, at most twice a second. Called some 20 times a second after the first sum.
  void beat() {
    const std::lock_guard lock(exchange_.mutex());
    const Clock::time_point now = Clock::now();
    if (now - beaten_ < RankPulse::kBeat) return;
    beaten_ = now;
    post("alive");
    read_letters();
  }
  /// Throws as add_up() does, for any rank that has not left. Under the exchange's mutex.
  void require_alive() {
    read_letters();
    if (!failure_.empty()) throw std::runtime_error(failure_);
    if (const std::string lost = pulse_.lost(); !lost.empty()) throw RankLost(lost);
  }
  /// Announces that the workers here have ended; those of the others may not know.
  void leave(bool failed) {
    const std::lock_guard lock(exchange_.mutex());
    post(failed ? "failed" : "done");
  }

  Exchange& exchange() { return exchange_; }

 private:
  /// Within this time, all messages that a rank sent before it left have arrived.
  static constexpr std::chrono::milliseconds kUnderWay{200};
  /// Polls before it yields, and yields before it sleeps: on a busy machine a yield takes
  /// milliseconds, and parts are a few microseconds apart.
  static constexpr int kLooks = 100, kYields = 500;
  struct Peer {
    std::vector<float> numbers{};
    int to = -1, from = -1;  ///< ports
  };
  struct Sum {
    std::vector<float> mine{};
    std::map<int, Peer> peers{};  ///< [rank]
  };
  Sum& open(int place, std::size_t numbers) {
    std::unique_ptr<Sum>& sum = sums_[place];
    if (sum) return *sum;
    sum = std::make_unique<Sum>();
    sum->mine.resize(numbers);
    for (int rank = 0; rank < exchange_.ranks(); ++rank) {
      if (rank == exchange_.rank()) continue;
      Peer& peer = sum->peers[rank];
      peer.numbers.resize(numbers);
      peer.to = exchange_.open_to(rank, place, {std::as_writable_bytes(std::span(sum->mine))});
      peer.from =
          exchange_.open_from(rank, place, {std::as_writable_bytes(std::span(peer.numbers))});
      exchange_.start(peer.from);
    }
    return *sum;
  }
  bool all_over(const Sum& sum) {
    for (const auto& [rank, peer] : sum.peers) {
      if (!exchange_.over(peer.from) || !exchange_.over(peer.to)) return false;
    }
    return true;
  }
  void post(const std::string& letter) {
    exchange_.post_to_others(Exchange::About::pipeline, letter);
  }
  void read_letters() {
    while (const auto letter = exchange_.letter(Exchange::About::pipeline)) {
      pulse_.heard(letter->from);
      if (letter->text == "alive") continue;
      any_left_ = true;
      pulse_.ended(letter->from);
      if (letter->text == "failed") failure_ = exchange_.name(letter->from) + " failed";
    }
  }

  Exchange& exchange_;
  // Under the exchange's mutex.
  std::map<int, std::unique_ptr<Sum>> sums_;  ///< [place]
  RankPulse pulse_{exchange_, std::chrono::seconds(6)};
  bool any_left_ = false;
  std::string failure_;  ///< of another rank; "": none
  Clock::time_point beaten_;
};

}  // namespace millrace::engine
