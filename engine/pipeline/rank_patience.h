// How long a worker sleeps while it waits for another rank.
#pragma once

#include <sys/prctl.h>

#include <algorithm>
#include <thread>

#include "engine/pipeline/rank_edge.h"
#include "engine/pipeline/wait_forecast.h"

namespace millrace::engine {

/// Messages arrive only while somebody looks, and ranks may share a core: a worker sleeps for as
/// long as the schedule's earlier waits at the same action lasted, and looks often after that.
class RankPatience final : public Patience {
 public:
  /// Called by the worker. `edge` outlives this.
  RankPatience(const RankEdge& edge, const Program& program) : edge_(edge), waits_(program) {
    prctl(PR_SET_TIMERSLACK, 1);  // a short sleep ends when it should
  }

  void begin(std::int64_t at) override {
    due_ = (since_ = Clock::now()) + (at < 0 ? Clock::duration() : waits_.at_least(at));
  }
  void came(std::int64_t at, Clock::duration waited) override { waits_.waited(at, waited); }

  std::chrono::microseconds next(std::chrono::microseconds own) override {
    using std::chrono::microseconds;
    // Rank 0 shows what others predict, so it looks more often.
    constexpr microseconds kShows{100}, kRests{2000};
    // A sleep ends late by as much as a message takes, so none begins while a token should come.
    constexpr std::chrono::milliseconds kLooks{5};
    const Clock::time_point now = Clock::now();
    const Clock::duration early = due_ - now;
    if (early > kImpatience && own == kPatience && !edge_.is_sending()) {
      const microseconds rest = edge_.admits() ? kShows : kRests;
      return std::min(rest, std::chrono::duration_cast<microseconds>(early));
    }
    if (now - (early > kImpatience ? since_ : due_) > kLooks) return kImpatience;
    std::this_thread::yield();
    return microseconds(0);
  }

 private:
  const RankEdge& edge_;
  WaitForecast waits_;
  Clock::time_point since_, due_;
};

}  // namespace millrace::engine
