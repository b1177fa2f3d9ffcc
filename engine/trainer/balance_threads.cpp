#include "engine/trainer/balance_threads.h"

#include <algorithm>
#include <functional>
#include <map>

#include "engine/pipeline/pinning.h"
#include "engine/plan/balance.h"
#include "engine/trainer/backends.h"
#include "engine/trainer/operations.h"

namespace millrace::engine {
namespace {

bool equal_threads(const TrainerOptions& options) {
  const std::vector<int>& all = options.threads;
  return std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) == all.end();
}

/// Counts of threads that a stage may take: those named; else, where steps are programs, all
/// powers of two that leave each other stage a core, and the rest.
std::vector<std::vector<int>> thread_choices(const TrainerOptions& options) {
  std::vector<std::vector<int>> choices;
  const bool a_worker_each = schedule_of(options).workers.size() == std::size_t(options.stages);
  const int most = usable_cores() - options.stages + 1;
  for (int stage = 0; stage < options.stages; ++stage) {
    const int named = options.threads.empty() ? 1 : options.threads[std::size_t(stage)];
    choices.push_back({std::max(named, 1)});
    if (named > 0 || !a_worker_each || !runs_programs(options, stage)) continue;
    for (int count = 2; count < most; count *= 2) choices.back().push_back(count);
    if (most > 1) choices.back().push_back(most);
  }
  return choices;
}

/// Cores handed out again, since threads were chosen, unless somebody chose cores.
void place_again(TrainerOptions& options) {
  const Schedule schedule = schedule_of(options);
  const auto placed = [&](const std::vector<int>& threads) {
    return place_stages({"cpu"}, int(schedule.workers.size()), usable_cores(), 0, threads);
  };
  if (options.devices == placed({}))
    options.devices = placed(threads_of_workers(options, schedule));
}

}  // namespace

bool balance_threads(TrainerOptions& options) {
  const std::vector<std::vector<int>> choices = thread_choices(options);
  const bool open = std::any_of(choices.begin(), choices.end(),
                                [](const auto& counts) { return counts.size() > 1; });
  const bool balances = options.cut.empty() && options.stages > 1;
  std::replace(options.threads.begin(), options.threads.end(), 0, 1);
  if (!open && (!balances || equal_threads(options))) return false;
  std::map<int, std::vector<double>> costs;
  int named = 0;
  for (const std::vector<int>& counts : choices) {
    named += counts.front();
    for (const int count : counts) {
      if (costs.count(count) == 0)
        costs[count] = cuttable(options, module_times_by_programs(options, count));
    }
  }
  Balance found = balanced(costs, choices, std::max(usable_cores(), named), options.cut);
  options.cut = std::move(found.cut);
  options.threads = std::move(found.threads);
  place_again(options);
  return true;
}

}  // namespace millrace::engine
