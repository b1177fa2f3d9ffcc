#include "capture/program/cuda/cuda_module.h"

#include <ATen/ATen.h>
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "capture/devices.h"
#include "capture/eager.h"
#include "capture/program/operations/convolution.h"

namespace millrace::capture {
namespace {

template <class Symbol>
Symbol found_in(void* library, const char* name) {
  return reinterpret_cast<Symbol>(dlsym(library, name));
}

bool driver_finds_a_device() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return false;
  // With CUDA's default of 8 hardware queues, eight stages and their copies would wait for one
  // another. CUDA reads this when it starts.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  const auto start = found_in<int (*)(unsigned)>(driver, "cuInit");
  const auto count = found_in<int (*)(int*)>(driver, "cuDeviceGetCount");
  int devices = 0;
  return start && count && start(0) == 0 && count(&devices) == 0 && devices > 0;
}

/// Null without a device. Found by the RUNPATH of the program, or of the library, that this is in.
void* library() {
  static void* const loaded = []() -> void* {
    if (!driver_finds_a_device()) return nullptr;
    // Global, since the module looks for NCCL among the global symbols.
    void* const module = dlopen("libmillrace_cuda.so", RTLD_LAZY | RTLD_GLOBAL);
    if (!module) std::fprintf(stderr, "millrace: warning: no GPU is used: %s\n", dlerror());
    return module;
  }();
  return loaded;
}

const CudaWires* wires() {
  static const auto found =
      library() ? found_in<const CudaWires*>(library(), "millrace_cuda_wires") : nullptr;
  return found;
}

}  // namespace

const CudaModule* cuda_module() {
  static const auto found =
      library() ? found_in<const CudaModule*>(library(), "millrace_cuda") : nullptr;
  return found;
}

const CudaModule& need_cuda() {
  if (const CudaModule* const module = cuda_module()) return *module;
  throw std::invalid_argument("no CUDA device is there");
}

int cuda_devices() {
  return cuda_module() ? cuda_module()->devices() : 0;
}
std::string cuda_device_name(int index) {
  return index < cuda_devices() ? cuda_module()->device_name(index) : "";
}

void use_repeatable_kernels() {
  at::Context& context = at::globalContext();
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);  // its choice varies from run to run
  context.setAllowTF32CuDNN(false);
  context.setAllowTF32CuBLAS(false);
  // Their gradients are summed by atomics.
  context.setSDPUseMemEfficient(false);
  context.setSDPUseCuDNN(false);
}

std::unique_ptr<Backend> make_eager_backend(c10::Device device) {
  if (device.is_cpu()) return std::make_unique<EagerBackend>();
  return need_cuda().make_eager_backend(device);
}
std::unique_ptr<Backend> make_graph_backend(c10::Device device, Lowering lowering) {
  if (!device.is_cuda()) throw std::invalid_argument(device.str() + " runs steps as they are");
  return need_cuda().make_graph_backend(device, std::move(lowering));
}

bool reads(c10::Device device, c10::Device other) {
  return device == other ||
         (device.is_cuda() && other.is_cuda() && need_cuda().reads(device, other));
}

at::Tensor seen_by(c10::Device device, const at::Tensor& pinned) {
  if (device.is_cpu()) return pinned;
  return at::for_blob(pinned.mutable_data_ptr(), pinned.sizes())
      .options(pinned.options().device(device))
      .target_device(device)
      .make_tensor();
}

at::Tensor pinned_zeros(at::IntArrayRef sizes, at::ScalarType type) {
  return at::zeros(sizes, at::TensorOptions(type).pinned_memory(cuda_devices() > 0));
}

std::vector<GpuId> gpus_here() {
  return wires() ? wires()->gpus_here() : std::vector<GpuId>();
}
std::unique_ptr<Wire> make_wire(c10::Device device, BoundaryBuffers& way, bool sends) {
  return wires()->make_wire(device, way, sends);
}
std::string new_wire_name() {
  return wires()->new_wire_name();
}

}  // namespace millrace::capture

namespace millrace::program {

std::unique_ptr<Prepared> prepare_gpu_call(const std::vector<GpuKernel>& kernels, GpuBind bind,
                                           std::size_t scratch_bytes) {
  return capture::need_cuda().prepare_call(kernels, std::move(bind), scratch_bytes);
}
std::unique_ptr<Prepared> gpu_convolution(const Node& node) {
  return capture::need_cuda().prepare_convolution(node);
}

capture::Lowering gpu_lowering(c10::Device device, const kernels::Numerics& numerics) {
  if (!capture::need_cuda().has_kernels(device)) return {};
  return [arena = std::make_shared<Arena>(device), numerics](const std::function<void()>& body) {
    run_dry(body);  // count bytes here: a recording keeps all it allocates
    const auto program =
        std::make_shared<Program>(body, *arena, ProgramOptions{.numerics = numerics});
    return capture::LoweredBody{[arena, program] { program->run(); }, program->operations()};
  };
}

}  // namespace millrace::program
