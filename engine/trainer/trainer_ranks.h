// What a trainer tells those of other ranks.
#pragma once

#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/monitor/clock.h"
#include "engine/pipeline/exchange.h"
#include "engine/pipeline/rank_options.h"
#include "stages/parameters.h"

namespace millrace::engine {

struct TrainerOptions;

/// Whose worker has it. `options`: of a trainer that is spread over ranks.
int rank_of(const TrainerOptions& options, const Schedule& schedule, int replica_id);

/// To all other ranks: go on at `cut`, with `weights`, after so many roll-backs.
void tell_of_cut(Exchange& exchange, const std::vector<int>& cut, const stages::StateDict& weights,
                 double backed_off);

/// Waits for `step` to be true, which is asked under the exchange's mutex. Throws RankLost if it
/// does not come true.
template <class Step>
void await_ranks(Exchange& exchange, const Step& step) {
  using namespace std::chrono_literals;
  for (const auto began = Clock::now(); Clock::now() - began < 30s;) {
    {
      const std::lock_guard lock(exchange.mutex());
      if (step()) return;
    }
    std::this_thread::sleep_for(200us);
  }
  throw RankLost("a rank is gone: nothing was heard of it for 30 s");
}

}  // namespace millrace::engine
