#include <ATen/ATen.h>

#include <stdexcept>

#include "capture/devices.h"
#include "capture/eager.h"

namespace millrace::capture {
namespace {

[[noreturn]] void refuse() {
  throw std::invalid_argument("this build's LibTorch has no CUDA");
}

}  // namespace

std::unique_ptr<Backend> make_eager_cuda_backend(c10::Device) {
  refuse();
}

std::unique_ptr<Backend> make_graph_backend(c10::Device, Lowering) {
  refuse();
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
