// Tensors in one message between ranks.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <vector>

#include "engine/pipeline/rank_options.h"

namespace millrace::engine {

/// Of up to four dimensions; those that do not stay are float32, each in the layout that it has,
/// since kernels go by that. Not thread-safe.
class TensorPayload final : public Payload {
 public:
  /// `tensors`: of a slot, as many as `bytes` at most, in host memory when packed and unpacked;
  /// outlives it. `bytes`: of each.
  /// `stay`: those that are there are written and read at these addresses alone, and so they are
  /// the message's parts; others are copied, and made anew when they come.
  TensorPayload(std::vector<at::Tensor>& tensors, const std::vector<std::size_t>& bytes, bool stay);

  Exchange::Parts parts() override;
  void pack() override;
  void unpack() override;

 private:
  static constexpr std::size_t kMostDims = 4;
  static constexpr std::int64_t kUndefined = -1, kNone = -2;
  /// Of each tensor, before all numbers.
  struct Note {
    std::int64_t dims = kNone;  ///< or kUndefined
    std::array<std::int64_t, kMostDims> sizes{}, strides{};

    at::IntArrayRef shape() const { return {sizes.data(), std::size_t(dims)}; }
    at::IntArrayRef layout() const { return {strides.data(), std::size_t(dims)}; }
  };
  /// Where a tensor's numbers lie in the message.
  struct Part {
    std::size_t bytes = 0;
    std::byte* place = nullptr;     ///< the tensor's own; null: `copy`
    std::vector<std::byte> copy{};  ///< empty where it stays
  };

  static void require_in_place(const at::Tensor& tensor, const Part& part);
  static void take_in_place(at::Tensor& tensor, const Part& part, const Note& note);
  static at::Tensor came(const std::byte* from, const Part& part, const Note& note);

  std::vector<at::Tensor>& tensors_;
  std::vector<Note> notes_;
  std::vector<Part> parts_;
};

}  // namespace millrace::engine
