// Memory for what lives within one program only.
#pragma once

#include <c10/core/Allocator.h>

#include <cstddef>
#include <vector>

namespace millrace::program {

/// Programs of one stage run one after another, so that all may use one block. Thread-bound.
class Arena {
 public:
  explicit Arena(c10::Device device = c10::kCPU) : device_(device) {}
  c10::Device device() const { return device_; }
  /// At least `bytes` at an address that stays, 64-byte aligned; shared with whoever asked before.
  char* block(std::size_t bytes);
  std::size_t bytes() const;

 private:
  struct Block {
    std::size_t bytes = 0;
    c10::DataPtr memory;
  };
  c10::Device device_;
  std::vector<Block> blocks_;  ///< each larger than the one before
};

/// A value that needs `bytes` from its first to its last use, both included.
struct Lifetime {
  std::size_t first = 0, last = 0, bytes = 0;
};

/// Offsets, multiples of 64, at which values that live at the same time lie apart; first fit,
/// largest first.
struct ArenaPlan {
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
};
ArenaPlan plan_arena(const std::vector<Lifetime>& values);

}  // namespace millrace::program
