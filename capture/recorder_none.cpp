// make_recorder() of a build whose LibTorch has no CUDA.
#include <stdexcept>  // std::invalid_argument

#include "capture/recorder_cpu.h"

namespace millrace::capture {

std::unique_ptr<Recorder> make_recorder(c10::Device device) {
  if (!device.is_cpu()) throw std::invalid_argument("this build's LibTorch has no CUDA");
  return make_cpu_recorder();
}

int cuda_devices() {
  return 0;
}
std::string cuda_device_name(int) {
  return "";
}
std::string cuda_version() {
  return "";
}

}  // namespace millrace::capture
