// Small networks with random costs, and all their plans by brute force.
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "engine/plan/cut.h"

namespace millrace::engine::plan {

inline double random_cost(std::mt19937& random, double most) {
  if (random() % 5 == 0) return 0;  // ties and free modules
  return std::uniform_real_distribution<double>(0, most)(random);
}

inline Profile random_profile(std::mt19937& random, int modules) {
  Profile profile;
  profile.network = "random";
  profile.input_bytes = random_cost(random, 50);
  for (int i = 0; i < modules; ++i) {
    ModuleProfile module;
    module.name = "m" + std::to_string(i);
    module.forward.median = random_cost(random, 10);
    module.input_gradient.median = i == 0 ? 0 : random_cost(random, 10);
    module.weight_gradient.median = random_cost(random, 10);
    module.update.median = random_cost(random, 3);
    module.bytes = {random_cost(random, 100), random_cost(random, 100), random_cost(random, 100),
                    random_cost(random, 50), random_cost(random, 200)};
    profile.modules.push_back(module);
  }
  return profile;
}

/// Every placement of a network of `modules` on the last of `places` places.
inline void each_plan(int modules, int places, const Freedom& freedom,
                      const std::function<void(const std::vector<Stage>&)>& visit,
                      std::vector<Stage> tail = {}) {
  const int end = tail.empty() ? modules : tail.front().begin;
  const int before = tail.empty() ? places : tail.front().place;
  if (end == 0) {
    if (freedom.stages == 0 || int(tail.size()) == freedom.stages) visit(tail);
    return;
  }
  for (int begin = 0; begin < end; ++begin) {
    for (int replicas = 1; replicas <= (freedom.replicas ? before : 1); ++replicas) {
      for (int threads = 1; threads <= (freedom.threads ? before : 1); ++threads) {
        if (replicas * threads > before) continue;
        std::vector<Stage> longer = {{begin, end, before - replicas * threads, replicas, threads}};
        longer.insert(longer.end(), tail.begin(), tail.end());
        each_plan(modules, places, freedom, visit, longer);
      }
    }
  }
}

/// The most samples between the forward and the backward of some stage.
inline int in_flight(const std::vector<Stage>& stages, int places) {
  int most = 0;
  for (const Stage& stage : stages) {
    int turns = 1;  // its own, and as many as it takes to fill the places behind
    for (int filled = places - stage.place - stage.places(); filled > 0; ++turns) {
      filled -= stage.replicas;
    }
    most = std::max(most, turns * stage.replicas);
  }
  return most;
}

}  // namespace millrace::engine::plan
