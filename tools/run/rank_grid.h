// The ranks of a run as a grid: pipelines one way, the ranks that share modules the other.
#pragma once

#include <memory>

#include "engine/trainer/tensor_group.h"
#include "engine/trainer/trainer.h"
#include "stages/tensor_split.h"
#include "tools/config/config.h"

namespace millrace::tools {

/// With `tensor` ranks to a module, rank r is rank r / tensor of pipeline r % tensor. Every
/// pipeline works on every sample; together they have the network once. Thread-bound.
class RankGrid {
 public:
  /// Once in each rank, at the same time. `all` outlives it.
  RankGrid(engine::Exchange& all, int tensor);
  ~RankGrid();

  int tensor() const { return tensor_; }
  int part() const { return part_; }  ///< of each module
  /// The ranks of this pipeline, and those that share modules with this one.
  engine::Exchange& pipeline() { return pipeline_ ? *pipeline_ : all_; }
  engine::Exchange& group() { return *group_; }

  /// Has `options`, which are the whole network's, be this rank's. What learning begins with is
  /// whole() then. Cores that `config` names are of the first part; the others have the next ones.
  void share(const Config& config, engine::TrainerOptions& options);
  const stages::StateDict& whole() const { return whole_; }
  /// Parts of all ranks that share modules, in their order, put together.
  stages::StateDict put_together(const stages::StateDict& parts) const {
    return split_ ? split_->whole_of(parts) : parts;
  }

 private:
  engine::Exchange& all_;
  const int tensor_, part_;
  std::unique_ptr<engine::Exchange> pipeline_, group_;  ///< null: tensor is 1
  std::shared_ptr<engine::TensorGroup> sums_;
  std::unique_ptr<stages::TensorSplit> split_;
  stages::StateDict whole_;
};

/// Throws ConfigError, about pipeline.tensor or what does not go with it.
void require_tensor(const Config& config, const engine::TrainerOptions& options, int ranks);

}  // namespace millrace::tools
