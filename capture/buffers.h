// The tensors that stages share, by slot.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "capture/backend.h"
#include "capture/fence.h"
#include "capture/wire.h"

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
  bool late_target = false;  ///< targets come after the forwards
  std::vector<at::Tensor> input;
  std::vector<at::Tensor> target;
  std::vector<at::Tensor> prediction;
};

/// One way over a cut, [slot]: tensors that one stage leaves for the other; several where skip
/// connections cross the cut too. Whoever receives the slot's token may read, once `ready` is
/// signalled.
struct BoundaryBuffers {
  explicit BoundaryBuffers(int slots) : tensors(slots), ready(slots), arrived(slots) {}
  std::vector<std::vector<at::Tensor>> tensors;
  /// For a reader that defers its work, too. Null: the writer's calls return when their work is
  /// done.
  std::vector<std::unique_ptr<Event>> ready;
  /// For a reader that does not; null: as above.
  std::vector<std::unique_ptr<Fence>> arrived;
  /// Lies in pinned host memory, since the reader's device can't read the writer's.
  bool on_host = false;
  /// The reader replays recorded work, the writer runs eagerly: write into the tensors that are
  /// there.
  bool fixed = false;
  /// The writer defers its work, the reader does not.
  bool to_host = false;
  /// To the same way in another process; null: the tensors are both stages'.
  std::unique_ptr<Wire> wire;
};

/// Between stage i and i+1: activations written upstream, their gradients written downstream.
struct Boundary {
  explicit Boundary(int slots) : activations(slots), gradients(slots) {}
  BoundaryBuffers activations;
  BoundaryBuffers gradients;
};

}  // namespace millrace::capture
