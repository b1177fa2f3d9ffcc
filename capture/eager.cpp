#include "capture/eager.h"

namespace millrace::capture {

std::unique_ptr<Backend> make_eager_backend(c10::Device device) {
  if (device.is_cpu()) return std::make_unique<EagerBackend>();
  return make_eager_cuda_backend(device);
}

}  // namespace millrace::capture
