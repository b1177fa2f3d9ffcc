#include "engine/plan/rules.h"

#include <algorithm>  // min
#include <map>        // by name
#include <stdexcept>  // std::invalid_argument

namespace millrace::engine::plan {

Rule rule_of(const std::string& schedule) {
  static const std::map<std::string, Rule> rules = {
      {"sequential", {}},
      {"partime", {}},
      {"pb", {}},
      {"pipedream", {.replicates = true}},
      {"2bw", {.minibatches = true, .replicates = true}},
      {"gpipe", {.flushes = true, .minibatches = true, .replicates = true}},
      {"1f1b", {.flushes = true, .minibatches = true, .replicates = true}},
      {"interleaved", {.flushes = true, .minibatches = true}},
      {"zb-h1", {.flushes = true, .minibatches = true}}};
  const auto found = rules.find(schedule);
  if (found == rules.end()) {
    throw std::invalid_argument("no plan is known for schedule \"" + schedule + "\"");
  }
  return found->second;
}

int versions_kept(const std::string& schedule, int depth) {
  if (schedule == "pipedream") return depth;
  return schedule == "2bw" ? 2 : 1;
}

int samples_kept(const std::string& schedule, int depth, int microbatches) {
  if (schedule == "gpipe") return microbatches;
  if (schedule == "1f1b" || schedule == "zb-h1") return std::min(microbatches, depth);
  if (schedule == "pipedream" || schedule == "2bw") return depth;
  return schedule == "pb" ? 2 * depth - 1 : 1;
}

int chunks_kept(int worker, int workers, int virtual_stages, int microbatches) {
  const int warm_up = 2 * (workers - worker - 1) + (virtual_stages - 1) * workers;
  return std::min(warm_up + 1, virtual_stages * microbatches);
}

}  // namespace millrace::engine::plan
