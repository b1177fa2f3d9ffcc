// The tensors that stages share, by slot.
#pragma once

#include <ATen/core/Tensor.h>  // at::Tensor

#include <memory>  // events
#include <vector>  // slots

#include "capture/stream.h"

namespace millrace::capture {

/// Input and target of the samples in flight, [slot]: float32 [1,C,H,W] on the host at fixed
/// addresses. Written by the feed (stage 0's worker), read by the
/// first and the last stage, which leaves its prediction beside them.
struct SampleBuffers {
  /// `target_shape` empty: the target is the input itself, one buffer for both. `pinned`: recorded
  /// steps copy from here.
  SampleBuffers(int slots, at::IntArrayRef shape, at::IntArrayRef target_shape,
                bool pinned = false);
  std::vector<at::Tensor> input;
  std::vector<at::Tensor> target;
  std::vector<at::Tensor> prediction;
};

/// One way over a cut, [slot]: tensors that one stage leaves for the other; several where skip
/// connections cross the cut too. Whoever receives the slot's token may read, once `ready` is
/// signalled.
struct Crossing {
  explicit Crossing(int slots) : tensors(slots), ready(slots) {}
  std::vector<std::vector<at::Tensor>> tensors;
  /// Null: the writer's calls return when their work is done.
  std::vector<std::unique_ptr<Event>> ready;
  /// Lies in pinned host memory, since the reader's device can't read the writer's.
  bool on_host = false;
  /// The reader replays recorded work: write into the tensors that are there.
  bool fixed = false;

  /// Has the calling thread wait until what lies in `slot` may be read.
  void synchronize(int slot) const {
    if (ready[slot]) ready[slot]->synchronize();
  }
};

/// Between stage i and i+1: activations written upstream, their gradients written downstream.
struct BoundaryBuffers {
  explicit BoundaryBuffers(int slots) : activations(slots), gradients(slots) {}
  Crossing activations;
  Crossing gradients;
};

}  // namespace millrace::capture
