#pragma once

#include <algorithm>
#include <barrier>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "stages/tensor_split.h"

namespace millrace::stages {

constexpr int kWays = 2;

/// Ranks that share modules meet here, as threads of one process: at each place separately, since a
/// pipeline has several workers.
class Table {
 public:
  struct Place {
    std::barrier<> all{kWays};
    std::span<float> parts[kWays];
  };
  /// Also notes it in `visited`.
  Place& at(int place, std::vector<int>& visited) {
    const std::lock_guard lock(mutex_);
    visited.push_back(place);
    return places_[place];
  }

 private:
  std::mutex mutex_;
  std::map<int, Place> places_;
};

class ThreadReducer final : public Reducer {
 public:
  ThreadReducer(std::shared_ptr<Table> table, int rank) : table_(std::move(table)), rank_(rank) {}
  void add_up(std::span<float> numbers, int place) override {
    Table::Place& here = table_->at(place, places);
    here.parts[rank_] = numbers;
    here.all.arrive_and_wait();
    std::vector<float> sum(numbers.size());
    for (const std::span<float> part : here.parts) {
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    here.all.arrive_and_wait();
    std::copy(sum.begin(), sum.end(), numbers.begin());
  }
  std::vector<int> places;  ///< of all sums, in order

 private:
  std::shared_ptr<Table> table_;
  int rank_;
};

/// Each rank's result of make(network, weights, reducer) for its parts, in a thread each.
template <class Make>
auto by_sharing_ranks(const std::shared_ptr<const Network>& network, const std::vector<int>& cut,
                      const StateDict& weights, const Make& make) {
  const TensorSplit split(network, cut, kWays);
  const auto table = std::make_shared<Table>();
  std::vector<decltype(make(network, weights, std::declval<ThreadReducer&>()))> results(kWays);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kWays; ++rank) {
    ranks.emplace_back([&, rank] {
      const auto reducer = std::make_shared<ThreadReducer>(table, rank);
      results[rank] = make(split.part(reducer), split.part_of(weights, rank), *reducer);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return results;
}

}  // namespace millrace::stages
