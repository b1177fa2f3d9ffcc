// The tensors that stages share, by slot.
#pragma once

#include <ATen/core/Tensor.h>  // at::Tensor

#include <memory>  // events
#include <vector>  // slots

#include "capture/backend.h"
#include "capture/stamp.h"

namespace millrace::capture {

/// What of a sample is a frame as it came, 8 bits a channel.
struct AsBytes {
  bool input = false;
  bool target = false;  ///< one that is not the input
};

/// Input and target of the samples in flight, [slot], on the host at fixed addresses: float32
/// [1,C,H,W] or, as bytes, uint8 [H,W,C], of which each stage that reads one makes floats for
/// itself. Written by the feed (stage 0's worker), read by the first and the last stage, which
/// leaves its prediction beside them.
struct SampleBuffers {
  /// `shape`, `target_shape`: [1,C,H,W], of the latter none: the target is the input itself, one
  /// buffer for both. `pinned`: recorded steps copy from here.
  SampleBuffers(int slots, at::IntArrayRef shape, at::IntArrayRef target_shape, bool pinned = false,
                AsBytes as_bytes = {});
  bool target_is_input() const { return target[0].is_same(input[0]); }
  std::vector<at::Tensor> input;
  std::vector<at::Tensor> target;
  std::vector<at::Tensor> prediction;
};

/// One way over a cut, [slot]: tensors that one stage leaves for the other; several where skip
/// connections cross the cut too. Whoever receives the slot's token may read, once `ready` is
/// signalled.
struct Crossing {
  explicit Crossing(int slots) : tensors(slots), ready(slots), arrived(slots) {}
  std::vector<std::vector<at::Tensor>> tensors;
  /// For a reader on a device. Null: the writer's calls return when their work is done.
  std::vector<std::unique_ptr<Event>> ready;
  /// For a reader that runs as it is called; null: as above.
  std::vector<std::unique_ptr<Stamp>> arrived;
  /// Lies in pinned host memory, since the reader's device can't read the writer's.
  bool on_host = false;
  /// The reader replays recorded work: write into the tensors that are there.
  bool fixed = false;
  /// The writer replays recorded work, the reader runs as it is called.
  bool to_host = false;

  /// Has the calling thread wait until what lies in `slot` may be read.
  void synchronize(int slot) const {
    if (arrived[slot]) arrived[slot]->wait();
  }
};

/// Between stage i and i+1: activations written upstream, their gradients written downstream.
struct BoundaryBuffers {
  explicit BoundaryBuffers(int slots) : activations(slots), gradients(slots) {}
  Crossing activations;
  Crossing gradients;
};

}  // namespace millrace::capture
