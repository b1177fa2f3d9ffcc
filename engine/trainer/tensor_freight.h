// Tensors in messages between ranks.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "capture/buffers.h"
#include "engine/pipeline/rank_links.h"
#include "engine/trainer/trainer.h"

namespace millrace::engine {

/// What a trainer's stages hand over through host memory, in the layout that it has, since kernels go by that.
/// Options, samples and boundaries outlive it. Thread-safety as Freight.
class TensorFreight final : public Freight {
 public:
  /// `fixed`: whether a stage's step is recorded, so that what it reads keeps its address.
  TensorFreight(const TrainerOptions& options, capture::SampleBuffers& samples,
                const std::vector<std::unique_ptr<capture::Boundary>>& boundaries,
                std::function<bool(int stage)> fixed)
      : options_(options), samples_(samples), boundaries_(boundaries), fixed_(std::move(fixed)) {}

  std::size_t bytes(Cargo cargo, int stage) const override;
  void await(Cargo cargo, int stage, int slot) override;
  void pack(Cargo cargo, int stage, int slot, std::byte* to) override;
  void unpack(Cargo cargo, int stage, int slot, const std::byte* from) override;

 private:
  capture::BoundaryBuffers& way(Cargo cargo, int stage);

  const TrainerOptions& options_;
  capture::SampleBuffers& samples_;
  const std::vector<std::unique_ptr<capture::Boundary>>& boundaries_;
  const std::function<bool(int)> fixed_;
};

}  // namespace millrace::engine
