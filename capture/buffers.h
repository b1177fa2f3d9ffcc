// The tensors that stages share, by slot, and how the host sees that they are there.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "capture/backend.h"
#include "capture/wire.h"

namespace millrace::capture {

/// A count on the device that goes up each time work passes, and its copy on the host. CUDA does
/// not say whether the host sees an event that a graph signals as over, from the launch before,
/// until the work gets there; a count can't be mistaken. One thread calls expect(), and whoever it
/// tells of the work may look.
class Fence {
 public:
  explicit Fence(c10::Device device);

  /// The work was called once more.
  void expect() { ++expected_; }
  /// Within a body, after what the host is to see: a stream's copies are done one after another.
  void set(Backend& stream);
  /// Whether the work that was called last has come by.
  bool is_set() const;
  /// Has the calling thread look until it is. Throws std::runtime_error if it never is.
  void wait() const;
  /// Forgets all, as the next work on `stream`.
  void reset(Backend& stream);

 private:
  std::int64_t expected_ = 0;
  at::Tensor on_device_, on_host_;  ///< int64, 0-dim
};

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
