#include "capture/program/cuda/choices.h"
#include "capture/program/cuda/operations.h"

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
std::unique_ptr<Prepared> prepare_on_gpu(const Node&) {
  return nullptr;
}
void arrange_for_gpu(std::vector<Node>&) {}

}  // namespace millrace::program
