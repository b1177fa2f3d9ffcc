// So does a CUDA device's.
#include "capture/recorder.h"
#include "tests/capture/stream_test.h"

namespace millrace::capture {

std::unique_ptr<Stream> stream_to_test() {
  return cuda_devices() > 0 ? make_stream(device_to_test()) : nullptr;
}
c10::Device device_to_test() {
  return {c10::kCUDA, 0};
}

}  // namespace millrace::capture
