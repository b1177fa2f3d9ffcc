// Tensors in messages between ranks.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "capture/buffers.h"
#include "capture/stage_step.h"
#include "engine/pipeline/rank_links.h"
#include "engine/trainer/trainer.h"

namespace millrace::engine {

/// What a trainer's stages hand over through host memory, in the layout that it has, since kernels
/// go by that. Options, samples and boundaries outlive it. Thread-safety as Freight.
class TensorFreight final : public Freight {
 public:
  /// `step`: of a stage here. What a recorded one reads keeps its address.
  TensorFreight(const TrainerOptions& options, capture::SampleBuffers& samples,
                const std::vector<std::unique_ptr<capture::Boundary>>& boundaries,
                std::function<const capture::StageStep&(int stage)> step)
      : options_(options),
        samples_(samples),
        boundaries_(boundaries),
        step_(std::move(step)),
        gradients_(std::size_t(options.stages)) {}

  std::size_t bytes(Cargo cargo, int stage) const override;
  void await(Cargo cargo, int stage, int slot) override;
  void pack(Cargo cargo, int stage, int slot, std::byte* to) override;
  void unpack(Cargo cargo, int stage, int slot, const std::byte* from) override;
  std::vector<float>& gradient(int stage, std::size_t more) override;
  void set_gradient(int stage, int copies) override;

 private:
  capture::BoundaryBuffers& way(Cargo cargo, int stage);

  const TrainerOptions& options_;
  capture::SampleBuffers& samples_;
  const std::vector<std::unique_ptr<capture::Boundary>>& boundaries_;
  const std::function<const capture::StageStep&(int)> step_;
  std::vector<std::vector<float>> gradients_;  ///< by stage
};

}  // namespace millrace::engine
