// Samples that came as bytes, for those who look at floats.
#pragma once

#include <ATen/core/Tensor.h>  // at::Tensor

#include <vector>  // slots

namespace millrace::engine {

/// Makes floats of a slot's bytes when somebody looks, once a sample. Memory is taken at the first
/// look at each slot. Whoever holds the slot's sample may call: first stage 0's worker, then the
/// last stage's; the tokens between them order the calls.
class ShownFrames {
 public:
  explicit ShownFrames(int slots) : floats_(slots), made_(slots, 0) {}

  /// Another frame is written to `slot`.
  void forget(int slot) { made_[slot] = 0; }
  /// What lies in `fed`, the slot's buffer, as [C,H,W] floats: its own, or made of its bytes.
  const float* floats(int slot, const at::Tensor& fed);

 private:
  std::vector<at::Tensor> floats_;
  std::vector<char> made_;  ///< no vector<bool>, whose slots share bytes
};

}  // namespace millrace::engine
