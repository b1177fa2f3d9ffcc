// Tensors in messages between ranks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "capture/buffers.h"
#include "capture/stage_step.h"
#include "engine/pipeline/rank_options.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

/// What a trainer's stages hand over: through host memory, in the layout that it has, since kernels
/// go by that, or by a wire, which a message without tensors has move. Options, samples and
/// boundaries outlive it. Thread-safety as Freight.
class TensorFreight final : public Freight {
 public:
  /// `step`: the first one here of a stage, null: none is; `replica`: one here by its replica_id.
  /// What a recorded one reads or leaves keeps its address.
  TensorFreight(const TrainerOptions& options, capture::SampleBuffers& samples,
                const std::vector<std::unique_ptr<capture::Boundary>>& boundaries,
                std::function<const capture::StageStep*(int stage)> step,
                std::function<const capture::StageStep&(int replica_id)> replica)
      : options_(options),
        samples_(samples),
        boundaries_(boundaries),
        step_(std::move(step)),
        replica_(std::move(replica)),
        gradients_(std::size_t(options.stages)) {}

  /// What an update of `to` here adds up of `from` elsewhere: room for what meetings bring, made
  /// anew.
  const stages::Tensors* gradients_of(int from, int to);

  Payload payload(Cargo cargo, int stage, int slot, bool sends) override;
  bool target_is_input() const override { return samples_.target_is_input(); }
  void await(Cargo cargo, int stage, int slot) override;
  std::vector<float>& gradient(int stage, std::size_t more) override;
  void set_gradient(int stage, int copies) override;
  void abandon() override;

 private:
  capture::BoundaryBuffers& way(Cargo cargo, int stage) const;
  bool records(int stage) const;  ///< here
  Payload prediction(at::Tensor& made, bool sends);
  Payload meeting(int stage);

  const TrainerOptions& options_;
  capture::SampleBuffers& samples_;
  const std::vector<std::unique_ptr<capture::Boundary>>& boundaries_;
  const std::function<const capture::StageStep*(int)> step_;
  const std::function<const capture::StageStep&(int)> replica_;
  std::vector<std::vector<float>> gradients_;              ///< by stage
  std::map<std::pair<int, int>, stages::Tensors> others_;  ///< gradients_of()
};

}  // namespace millrace::engine
