// Tensors that stages share, by slot, and how the host learns that they are ready.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "capture/backend.h"
#include "capture/wire.h"

namespace millrace::capture {

/// A counter on the device, incremented each time the work passes, and its copy on the host. Not an
/// event: CUDA doesn't specify whether the host sees a graph's event as complete, from the previous
/// launch, until the work reaches it. One thread calls expect(), others is_set() once signalled.
class Fence {
 public:
  explicit Fence(c10::Device device);

  void expect() { ++expected_; }
  /// Within a body, after what the host waits for: copies on one stream run in order.
  void set(Backend& stream);
  /// Whether the latest call of the work has passed.
  bool is_set() const;
  /// Polls until is_set(). Throws std::runtime_error after 60 s.
  void wait() const;
  /// Clears the count, as the next work on `stream`.
  void reset(Backend& stream);

 private:
  std::int64_t expected_ = 0;
  at::Tensor on_device_, on_host_;  ///< int64, 0-dim
};

/// Which tensors of a sample are raw frames, 8 bits per channel.
struct AsBytes {
  bool input = false;
  bool target = false;  ///< if it is not the input
};

/// Inputs and targets of the samples in flight, [slot], on the host at fixed addresses: float32
/// [1,C,H,W], or uint8 [H,W,C], which each reading stage converts itself. Written by the feed
/// (stage 0's worker), read by the first and the last stage, which leaves its prediction here.
struct SampleBuffers {
  /// `shape`, `target_shape`: [1,C,H,W]; an empty `target_shape` makes the input the target, in one
  /// buffer. `pinned`: recorded steps copy from here.
  SampleBuffers(int slots, at::IntArrayRef shape, at::IntArrayRef target_shape, bool pinned = false,
                AsBytes as_bytes = {});
  bool target_is_input() const { return target[0].is_same(input[0]); }
  bool late_target = false;  ///< targets arrive after the forward
  std::vector<at::Tensor> input;
  std::vector<at::Tensor> target;
  std::vector<at::Tensor> prediction;
};

/// One direction across a cut: tensors one stage leaves for the other, several if skip connections
/// cross it too. Whoever receives a slot's token may read once `ready` is signalled.
struct BoundaryBuffers {
  BoundaryBuffers(int slots, int sets) : tensors(sets), ready(slots), arrived(slots) {}
  std::vector<at::Tensor>& of(int slot) { return tensors[std::size_t(slot) % tensors.size()]; }
  std::vector<std::vector<at::Tensor>> tensors;  ///< [set]; slots share them
  /// Per slot, if the reader defers its work, too. Null: the writer's calls block until it is done.
  std::vector<std::unique_ptr<Event>> ready;
  /// Per slot, if the reader does not defer its work. Null: the writer's calls block.
  std::vector<std::unique_ptr<Fence>> arrived;
  /// In pinned host memory, because the reader's device can't read the writer's.
  bool on_host = false;
  /// The reader replays recorded work, the writer runs eagerly: write into the existing tensors.
  bool fixed = false;
  /// The writer defers its work, the reader does not.
  bool to_host = false;
  /// The link to another process's end of this direction; null: both stages share the tensors.
  std::unique_ptr<Wire> wire;
};

/// Between stage i and i+1: activations written upstream, their gradients written downstream.
struct Boundary {
  /// Sets: see engine::TensorSets.
  Boundary(int slots, int activation_sets, int gradient_sets)
      : activations(slots, activation_sets), gradients(slots, gradient_sets) {}
  BoundaryBuffers activations;
  BoundaryBuffers gradients;
};

}  // namespace millrace::capture
