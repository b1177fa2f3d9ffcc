// make_recorder(), make_stream() and make_streams() of a build whose LibTorch has no CUDA.
#include <ATen/ATen.h>  // plain tensors

#include <stdexcept>  // std::invalid_argument

#include "capture/recorder_cpu.h"
#include "capture/stream.h"

namespace millrace::capture {

std::unique_ptr<Recorder> make_recorder(c10::Device device) {
  if (!device.is_cpu()) throw std::invalid_argument("this build's LibTorch has no CUDA");
  return make_cpu_recorder();
}

std::unique_ptr<Stream> make_stream(c10::Device) {
  throw std::invalid_argument("this build's LibTorch has no CUDA");
}

std::vector<std::unique_ptr<Stream>> make_streams(c10::Device, const std::vector<double>&) {
  throw std::invalid_argument("this build's LibTorch has no CUDA");
}

bool reads(c10::Device device, c10::Device other) {
  return device == other;
}

at::Tensor pinned_zeros(at::IntArrayRef sizes, at::ScalarType type) {
  return at::zeros(sizes, type);
}

void use_repeatable_kernels() {}

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
