#pragma once

#include <ATen/core/ivalue.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stages/network.h"
#include "stages/parameters.h"

namespace millrace::stages {

/// All-reduce of the ranks that share modules. All call it for the same places in the same order.
class Reducer {
 public:
  virtual ~Reducer() = default;
  /// Sums in place, with the same bits for all. Blocks. Throws std::runtime_error.
  virtual void add_up(std::span<float> numbers, int place) = 0;
};

struct ReducerArgument final : torch::CustomClassHolder {
  explicit ReducerArgument(std::shared_ptr<Reducer> of) : reducer(std::move(of)) {}
  const std::shared_ptr<Reducer> reducer;
};

/// Tensor parallelism: pairs of modules within a stage are split as in Megatron-LM (arXiv
/// 1909.08053), the first by its output's channels (its weight's rows, "column-parallel" in y = x
/// A), the second by its input's, with only per-channel layers between. So a pair has one
/// all-reduce forward, after the second, and one backward, before the first. Each rank has all
/// tensors between pairs and across cuts. A sum has as many summands as ways, so results differ
/// from the whole network's only in rounding. Immutable.
class TensorSplit {
 public:
  TensorSplit(std::shared_ptr<const Network> whole, const std::vector<int>& cut, int ways);

  const std::vector<std::pair<int, int>>& pairs() const { return pairs_; }
  /// One rank's network, with the whole network's parameter names.
  std::shared_ptr<const Network> part(std::shared_ptr<Reducer> reducer) const;

  /// Weights and optimizer state of rank `part` of `ways`.
  StateDict part_of(const StateDict& whole, int part) const;
  /// The inverse of part_of(): `parts` has each name once per rank, in the order of ranks.
  StateDict whole_of(const StateDict& parts) const;

 private:
  /// The dimension along which an entry is split; -1: each rank has all of it.
  int dimension(const std::string& name, const at::Tensor& entry) const;

  std::shared_ptr<const Network> whole_;
  int ways_;
  std::vector<std::pair<int, int>> pairs_;
  std::map<std::string, int> dimensions_;  ///< [parameter]
};

}  // namespace millrace::stages
