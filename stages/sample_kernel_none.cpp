// A build without nvcc: LibTorch's operators do it.
#include "stages/sample_kernel.h"

namespace millrace::stages {

bool sample_kernel(const at::Tensor&, at::Tensor&) {
  return false;
}

}  // namespace millrace::stages
