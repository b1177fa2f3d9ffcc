#include "engine/trainer/shown_frames.h"

#include <c10/core/GradMode.h>  // NoGradGuard

#include "stages/sample_of_bytes.h"

namespace millrace::engine {

const float* ShownFrames::floats(int slot, const at::Tensor& fed) {
  if (fed.scalar_type() != at::kByte) return fed.const_data_ptr<float>();
  if (!made_[slot]) {
    const c10::NoGradGuard no_grad;
    stages::sample_of_bytes(fed, floats_[slot]);
    made_[slot] = 1;
  }
  return floats_[slot].const_data_ptr<float>();
}

}  // namespace millrace::engine
