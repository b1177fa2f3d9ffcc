// A network of whose convolutions and linear layers each rank has a part: tensor parallelism.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stages/network.h"
#include "stages/parameters.h"

namespace millrace::stages {

/// Adds up what the ranks that share modules have each computed. All call it for the same places in
/// the same order, where one thread does.
class Reducer {
 public:
  virtual ~Reducer() = default;
  /// In place, in an order that gives all of them the same bits. Blocks. Throws std::runtime_error.
  virtual void add_up(std::span<float> numbers, int place) = 0;
};

/// Pairs of modules within a stage are split as Megatron-LM splits its blocks (arXiv 1909.08053):
/// the first by its output's channels (its weight's rows, "column-parallel" in y = x A), the second
/// by its input's, with only layers between that treat channels alone. So a pair adds up once
/// forward, after the second, and once backward, before the first. What lies between pairs, and
/// crosses cuts, each rank has whole. Sums are of as many parts as there are ways, so that results
/// differ from the whole network's in rounding alone. Immutable.
class TensorSplit {
 public:
  struct Pair {
    int first = 0, second = 0;
  };

  TensorSplit(std::shared_ptr<const Network> whole, const std::vector<int>& cut, int ways);

  const std::vector<Pair>& pairs() const { return pairs_; }
  /// What one of the ranks has. Names of parameters are the whole network's.
  std::shared_ptr<const Network> part(std::shared_ptr<Reducer> reducer) const;

  /// Of weights and optimizer state: what rank `part` of `ways` has.
  StateDict part_of(const StateDict& whole, int part) const;
  /// The other way: `parts` has each name once a rank, in the order of ranks.
  StateDict whole_of(const StateDict& parts) const;

 private:
  /// The dimension along which an entry is split; -1: each rank has all of it.
  int dimension(const std::string& name, const at::Tensor& entry) const;

  std::shared_ptr<const Network> whole_;
  int ways_;
  std::vector<Pair> pairs_;
  std::map<std::string, int> dimensions_;  ///< by parameter
};

}  // namespace millrace::stages
