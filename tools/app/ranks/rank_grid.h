#pragma once

#include <algorithm>
#include <memory>

#include "engine/trainer/sum_group.h"
#include "engine/trainer/trainer.h"
#include "stages/tensor_split.h"
#include "tools/app/config/config.h"

namespace millrace::app {

/// p x t x d ranks: `copies` d of a pipeline with p places, each with `tensor` t ranks that share
/// its modules. Rank r has part r % t of place r / t % p of copy r / (p t). A copy's ranks hold the
/// network once and work on every sample of the copy's source. Each copy has its own source;
/// updates are summed over copies. Thread-bound.
class RankGrid {
 public:
  /// A collective: construct one on each rank, at the same time. `all` outlives it.
  RankGrid(engine::Exchange& all, const Config& config, engine::GpusOfRanks gpus);
  ~RankGrid();

  int tensor() const { return tensor_; }
  int part() const { return part_; }
  int copies() const { return copies_; }
  int copy() const { return all_.rank() / (all_.ranks() / copies_); }
  int place_of(int rank) const { return rank % (all_.ranks() / copies_) / tensor_; }
  /// pipeline(): the ranks of this pipeline; group(): those that share modules with this one;
  /// copies_group(): those with the same part and place in other copies.
  engine::Exchange& pipeline() { return pipeline_ ? *pipeline_ : all_; }
  engine::Exchange& group() { return *group_; }
  engine::SumGroup& copies_group() { return *agreed_; }
  /// Heartbeat to the other ranks, about 20 times a second during learning.
  void beat();

  /// Turns `options` for the whole network into this rank's; whole() then holds the initial
  /// weights. Cores named in `config` go to the first part; the others take the next ones.
  void share(const Config& config, engine::TrainerOptions& options);
  const stages::StateDict& whole() const { return whole_; }
  /// Joins the parts of all ranks that share modules, in rank order.
  stages::StateDict put_together(const stages::StateDict& parts) const {
    return split_ ? split_->whole_of(parts) : parts;
  }

 private:
  engine::Exchange& all_;
  const int tensor_, copies_, part_;
  std::unique_ptr<engine::Exchange> pipeline_, group_, same_;  ///< null: no such ranks
  std::shared_ptr<engine::SumGroup> sums_, agreed_;            ///< over group_ and same_
  std::unique_ptr<stages::TensorSplit> split_;
  const engine::GpusOfRanks gpus_;
  stages::StateDict whole_;
};

/// Throws ConfigError about pipeline.tensor, source.uris or keys that conflict with them.
void require_grid(const Config& config, const engine::TrainerOptions& options, int ranks);
inline int copies_of(const Config& config) {
  return std::max(1, int(config.source.uris.size()));
}

/// `config` as `ranks` run it; null: one process. Ranks replay nothing, so "auto" is "none".
inline Config as_ranks_run(Config config, const engine::Exchange* ranks) {
  if (ranks && config.replay.kind == "auto") config.replay.kind = "none";
  return config;
}

/// Whether each weight is on one rank only. Ranks sharing one would apply a new learning rate, or
/// take a requested snapshot, at different samples.
inline bool weights_are_apart(const Config& config) {
  return config.pipeline.tensor == 1 && copies_of(config) == 1;
}

}  // namespace millrace::app
