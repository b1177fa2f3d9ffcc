// So does a CUDA device's.
#include "capture/devices.h"
#include "tests/capture/backend_test.h"

namespace millrace::capture {

std::unique_ptr<Backend> backend_to_test() {
  return cuda_devices() > 0 ? make_graph_backend(device_to_test()) : nullptr;
}
c10::Device device_to_test() {
  return {c10::kCUDA, 0};
}

}  // namespace millrace::capture
