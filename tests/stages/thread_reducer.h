// Ranks that share modules, as threads of one process.
#pragma once

#include <algorithm>
#include <barrier>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "stages/tensor_split.h"

namespace millrace::stages {

constexpr int kWays = 2;

/// Where they meet: at each place by itself, since a pipeline's workers are several at once.
class Table {
 public:
  struct Place {
    std::barrier<> all{kWays};
    std::span<float> parts[kWays];
  };
  Place& at(int place) {
    const std::lock_guard lock(mutex_);
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
    Table::Place& here = table_->at(place);
    {
      const std::lock_guard lock(mutex_);
      places.push_back(place);
    }
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
  std::mutex mutex_;
};

}  // namespace millrace::stages
