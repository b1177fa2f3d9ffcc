#pragma once

#include <sys/prctl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "engine/pipeline/gateway.h"
#include "engine/pipeline/rank_ports.h"

namespace millrace::engine {

/// Predicts waits: since a schedule repeats, the wait before an action of its period takes about as
/// long as the last times. Thread-bound.
class WaitForecast {
 public:
  using Duration = std::chrono::nanoseconds;

  explicit WaitForecast(const Program& program)
      : prologue_(std::int64_t(program.prologue.size())), waits_(program.period.size()) {}

  /// A lower bound on the wait before action `index` of the program: less than all recent ones, so
  /// a worker that overslept gets a shorter estimate next time.
  Duration at_least(std::int64_t index) const {
    if (index < prologue_) return {};
    const auto& waits = waits_[place(index)];
    const Duration shortest = *std::min_element(waits.begin(), waits.end());
    return std::max(Duration(), shortest - shortest / 16 - kMargin);
  }

  void waited(std::int64_t index, Duration time) {
    if (index < prologue_) return;
    auto& waits = waits_[place(index)];
    std::rotate(waits.begin(), waits.begin() + 1, waits.end());
    waits.back() = time;
  }

 private:
  static constexpr std::chrono::microseconds kMargin{100};  ///< wake-up latency

  std::size_t place(std::int64_t index) const {
    return std::size_t(index - prologue_) % waits_.size();
  }

  const std::int64_t prologue_;
  std::vector<std::array<Duration, 4>> waits_;  ///< [action of the period]; 0: not known
};

/// Messages progress only while somebody polls, and ranks may share a core: a worker sleeps for as
/// long as earlier waits at the same action lasted, then polls often.
class RankPatience final : public Patience {
 public:
  /// Called by the worker. `exchange` and `ports` must outlive this.
  RankPatience(Exchange& exchange, const RankPorts& ports, const Program& program)
      : exchange_(exchange), ports_(ports), waits_(program) {
    prctl(PR_SET_TIMERSLACK, 1);  // short sleeps must not oversleep
  }

  void begin(std::int64_t at) override {
    due_ = (since_ = Clock::now()) + (at < 0 ? Clock::duration() : waits_.at_least(at));
  }
  void came(std::int64_t at, Clock::duration waited) override { waits_.waited(at, waited); }

  std::chrono::microseconds next(std::chrono::microseconds own) override {
    using std::chrono::microseconds;
    // Rank 0 shows the predictions of other ranks, so it polls more often.
    constexpr microseconds kShows{100}, kRests{2000};
    // A sleep overshoots by as much as a message takes, so none begins while a token is due.
    constexpr std::chrono::milliseconds kLooks{5};
    const Clock::time_point now = Clock::now();
    const Clock::duration early = due_ - now;
    if (early > kImpatience && own == kPatience && !is_sending()) {
      const microseconds rest = exchange_.rank() == 0 ? kShows : kRests;
      return std::min(rest, std::chrono::duration_cast<microseconds>(early));
    }
    if (now - (early > kImpatience ? since_ : due_) > kLooks) return kImpatience;
    std::this_thread::yield();
    return microseconds(0);
  }

 private:
  /// Whether a message sent here still needs progress.
  bool is_sending() const {
    const std::lock_guard lock(exchange_.mutex());
    return ports_.is_sending();
  }

  Exchange& exchange_;
  const RankPorts& ports_;
  WaitForecast waits_;
  Clock::time_point since_, due_;
};

}  // namespace millrace::engine
