// Memory that several recordings share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace millrace::capture {

/// Up to the next 64-byte aligned place.
constexpr std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t kAlign = 64;
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

/// One block serves all programs of a stage, which run one after another. On a core it grows where
/// it is while it has room; otherwise, a larger block is added to it. Thread-bound.
class Arena {
 public:
  explicit Arena(c10::Device device = c10::kCPU) : device_(device) {}
  c10::Device device() const { return device_; }
  /// At least `bytes` at a stable 64-byte aligned address, shared with earlier callers.
  char* block(std::size_t bytes);
  std::int64_t bytes() const;

 private:
  static constexpr std::size_t kMostRoom = 256 << 20;  ///< to grow: `ulimit -v` counts it
  struct Block {
    std::size_t bytes = 0, room = 0;  ///< in use; reserved addresses
    std::shared_ptr<char> memory;
  };
  static Block reserve(std::size_t bytes, c10::Device device);
  c10::Device device_;
  std::vector<Block> blocks_;  ///< each larger than the last
};

/// A value of `bytes`, alive from its first to its last use inclusive.
struct Lifetime {
  std::size_t first = 0, last = 0, bytes = 0;
};

/// Offsets, multiples of 64, that keep values alive at once apart; first fit, largest first.
struct ArenaPlan {
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
};
ArenaPlan plan_arena(const std::vector<Lifetime>& values);

/// While it lives, what a body recorded on this thread allocates and still holds at its end moves
/// to `arena`, which outlives the recording. For activations that are free before the next forward.
class KeptIn {
 public:
  explicit KeptIn(Arena& arena);
  ~KeptIn();
  KeptIn(const KeptIn&) = delete;
  KeptIn& operator=(const KeptIn&) = delete;
  static Arena* current();  ///< null: none
  /// Within a body: leaves `tensor`'s memory where it is, since others read it later.
  static void exclude(const at::Tensor& tensor);
  /// Within a body: `tensor` may have the memory of `copy`, to which the body copies it and which
  /// nobody overwrites while `tensor` is read.
  static void unite(const at::Tensor& tensor, const at::Tensor& copy);
  struct Exceptions {
    std::vector<const c10::StorageImpl*> stay;
    std::vector<std::pair<const c10::StorageImpl*, at::Tensor>> united;
  };
  /// Those since the last call.
  static Exceptions take_exceptions();

 private:
  Arena* before_;
};

}  // namespace millrace::capture
