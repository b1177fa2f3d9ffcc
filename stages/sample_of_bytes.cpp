#include "stages/sample_of_bytes.h"

#include <ATen/ATen.h>

#include "stages/sample_kernel.h"

namespace millrace::stages {

void sample_of_bytes(const at::Tensor& bytes, at::Tensor& sample) {
  if (!sample.defined()) {
    sample = at::empty({1, bytes.size(2), bytes.size(0), bytes.size(1)},
                       bytes.options().dtype(at::kFloat));
  }
  if (bytes.is_cuda() && sample_kernel(bytes, sample)) return;
  // By a tensor on the device: of a number CUDA's division takes the reciprocal and multiplies,
  // which is a bit off for half of the values.
  sample.copy_(bytes.permute({2, 0, 1}).unsqueeze(0)).div_(at::full({}, 255, sample.options()));
}

}  // namespace millrace::stages
