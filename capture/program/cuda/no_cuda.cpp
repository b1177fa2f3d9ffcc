// A build whose LibTorch has no CUDA.
#include <ATen/ATen.h>

#include <stdexcept>

#include "capture/devices.h"
#include "capture/eager.h"
#include "capture/program/cuda/cache.h"
#include "capture/program/operations/convolution.h"

namespace millrace::capture {
namespace {

[[noreturn]] void refuse() {
  throw std::invalid_argument("this build's LibTorch has no CUDA");
}

}  // namespace

std::unique_ptr<Backend> make_eager_backend(c10::Device device) {
  if (!device.is_cpu()) refuse();
  return std::make_unique<EagerBackend>();
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

namespace millrace::gpu {

Choices choices() {
  return {};
}
void take_choices(const Choices&) {}

}  // namespace millrace::gpu

namespace millrace::program {

capture::Lowering gpu_lowering(c10::Device, const kernels::Numerics&) {
  return {};
}
std::unique_ptr<Prepared> prepare_gpu_call(const std::vector<GpuKernel>&, GpuBind, std::size_t) {
  return nullptr;
}
std::unique_ptr<Prepared> gpu_convolution(const Node&) {
  return nullptr;
}
void arrange_for_gpu(std::vector<Node>&) {}

}  // namespace millrace::program
