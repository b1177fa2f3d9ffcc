#include <ATen/ATen.h>

#include <algorithm>

#include "capture/devices.h"
#include "engine/trainer/rank_wires.h"
#include "engine/trainer/tensor_freight.h"
#include "engine/trainer/trainer.h"

namespace millrace::engine {

void Trainer::build() {
  const std::lock_guard lock(cut_mutex_);
  prepared_ = false;
  steps_.clear();
  if (wires_) wires_->forget();
  boundaries_.clear();
  auto backends = make_backends(options_, schedule_.replica_ids(), recording_.on,
                                [this](int replica_id) { return here(replica_id); });
  const auto backend_of = [&](int stage) {
    const auto first = backends.begin() + schedule_.replica_id(stage, 0);
    const auto found = std::find_if(first, first + schedule_.replicas_of(stage),
                                    [](const auto& backend) { return backend != nullptr; });
    return found == first + schedule_.replicas_of(stage) ? nullptr : found->get();
  };
  // Messages to other ranks go by slot; work that a device has queued may still read.
  const bool whole = options_.exchange || std::ranges::any_of(backends, [](const auto& backend) {
                       return backend->defers();
                     });
  sets_ = whole ? sets_by_slot(schedule_) : tensor_sets(schedule_);
  for (int i = 0; i + 1 < options_.stages; ++i) {
    boundaries_.push_back(std::make_unique<capture::Boundary>(
        schedule_.slots(), sets_.activations[i], sets_.gradients[i]));
    join(i, backend_of(i), backend_of(i + 1));
  }
  std::vector<stages::Stage*> stages;
  for (int i = 0; i < options_.stages; ++i) {
    for (int replica = 0; replica < schedule_.replicas_of(i); ++replica) {
      const int replica_id = schedule_.replica_id(i, replica);
      steps_.push_back(backends[replica_id]
                           ? make_step(build_stage(options_, schedule_, i, replica_id), i,
                                       replica_id, std::move(backends[replica_id]))
                           : nullptr);
      stages.push_back(steps_.back() ? &steps_.back()->stage() : nullptr);
    }
  }
  tie_replicas(schedule_, stages,
               [this](int from, int to) { return freight_->gradients_of(from, to); });
}

std::unique_ptr<capture::StageStep> Trainer::make_step(stages::Stage stage, int index,
                                                       int replica_id,
                                                       std::unique_ptr<capture::Backend> backend) {
  const c10::Device place = device_of(options_, replica_id);
  capture::Boundary* up = index > 0 ? boundaries_[index - 1].get() : nullptr;
  capture::Boundary* down = index + 1 < options_.stages ? boundaries_[index].get() : nullptr;
  if (place.is_cuda()) capture::use_repeatable_kernels();
  return std::make_unique<capture::StageStep>(std::move(stage), std::move(backend), place, samples_,
                                              up, down, sets_.inner[index]);
}

void Trainer::join(int stage, const capture::Backend* above, const capture::Backend* below) {
  if (wires_ && wires_->over_cut(stage)) return wires_->lay(stage, *boundaries_[stage]);
  const c10::Device up = device_of(options_, schedule_.replica_id(stage, 0)),
                    down = device_of(options_, schedule_.replica_id(stage + 1, 0));
  const auto set = [&](capture::BoundaryBuffers& buffers, const capture::Backend* writer,
                       const capture::Backend* reader, c10::Device from, c10::Device to) {
    buffers.on_host = !capture::reads(to, from);
    // Data from another rank is written as by an eager stage.
    buffers.fixed = reader && reader->records() && !(writer && writer->records());
    buffers.to_host = writer && writer->defers() && !(reader && reader->defers());
  };
  capture::Boundary& boundary = *boundaries_[stage];
  set(boundary.activations, above, below, up, down);
  set(boundary.gradients, below, above, down, up);
  const stages::Network& network = *options_.network;
  // The layout that programs leave, and kernels prefer.
  const bool channels_last = runs_programs(options_, schedule_.replica_id(stage, 0)) &&
                             runs_programs(options_, schedule_.replica_id(stage + 1, 0));
  for (capture::BoundaryBuffers* buffers : {&boundary.activations, &boundary.gradients}) {
    for (stages::Tensors& set : buffers->tensors) {
      if (!buffers->fixed) break;
      for (const int source : network.crossing(options_.cut[stage])) {
        const at::Tensor zeros = capture::pinned_zeros(network.shape(source).sizes());
        set.push_back(channels_last ? zeros.contiguous(at::MemoryFormat::ChannelsLast) : zeros);
      }
    }
  }
}

}  // namespace millrace::engine
