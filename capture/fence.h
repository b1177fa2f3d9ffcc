// How the host sees that recorded work has come to a point.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "capture/backend.h"

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

}  // namespace millrace::capture
