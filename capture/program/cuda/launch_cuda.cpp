#include "capture/program/cuda/launch_cuda.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "capture/graph_cuda.h"
#include "capture/own_stream_cuda.h"
#include "capture/program/cuda/arguments.h"

namespace millrace::program {
namespace {

cudaError_t launch_kernel(const void* kernel, const LaunchShape& shape, int blocks,
                          void** arguments, cudaStream_t stream) {
  std::array<cudaLaunchAttribute, 2> attributes{};
  unsigned count = 0;
  if (shape.early) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {unsigned(shape.cluster), 1, 1};
  }
  const cudaLaunchConfig_t how{.gridDim = dim3(unsigned(blocks)),
                               .blockDim = dim3(unsigned(shape.threads)),
                               .dynamicSmemBytes = shape.shared_floats * sizeof(float),
                               .stream = stream,
                               .attrs = attributes.data(),
                               .numAttrs = count};
  return cudaLaunchKernelExC(&how, kernel, arguments);
}

capture::OwnGraph captured(cudaStream_t stream, const std::function<void()>& launches) {
  const c10::cuda::CUDAStreamGuard here(
      c10::cuda::getStreamFromExternal(stream, c10::cuda::current_device()));
  capture::Capturing capturing(stream);
  launches();
  return capturing.end();
}

capture::OwnGraphExec executable(const capture::OwnGraph& graph) {
  cudaGraphExec_t made = nullptr;
  C10_CUDA_CHECK(cudaGraphInstantiate(&made, graph.get(), 0));
  return capture::OwnGraphExec(made);
}

/// Whether a child graph can hold early launches: from sm_90 on, if the driver allows it.
bool can_come_early() {
  static const bool can = [] {
    if (device_properties().major < 9) return false;
    const void* const kernel = gpu::kernel("add_up_parts", c10::cuda::current_device(), 0);
    const capture::OwnStream stream(c10::Device(at::kCUDA, c10::cuda::current_device()));
    gpu::PartsArguments nothing{.all = {{.blocks = 1}}};
    void* arguments[] = {&nothing};
    const auto launch = [&](bool early) {
      C10_CUDA_CHECK(launch_kernel(kernel, {.threads = gpu::kThreads, .early = early}, 1, arguments,
                                   stream.get()));
    };
    try {
      launch(false);  // loads the kernel, which a capture can't do
      const capture::OwnGraph part = captured(stream.get(), [&] {
        launch(false);
        launch(true);
      });
      cudaGraph_t made = nullptr;
      C10_CUDA_CHECK(cudaGraphCreate(&made, 0));
      const capture::OwnGraph whole(made);
      cudaGraphNode_t node = nullptr;
      C10_CUDA_CHECK(cudaGraphAddChildGraphNode(&node, made, nullptr, 0, part.get()));
      const capture::OwnGraphExec run = executable(whole);
      C10_CUDA_CHECK(cudaGraphLaunch(run.get(), stream.get()));
      C10_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
      return true;
    } catch (const c10::Error&) {
      cudaGetLastError();
      return false;
    }
  }();
  return can;
}

}  // namespace

Launch::Launch(const std::string& expression, const LaunchShape& shape)
    : kernel_(gpu::kernel(expression, c10::cuda::current_device(),
                          shape.shared_floats * sizeof(float))),
      shape_(shape) {
  shape_.early = shape.early && can_come_early();
}

void Launch::launch(int blocks, void** arguments) const {
  if (blocks == 0) return;
  C10_CUDA_CHECK(
      launch_kernel(kernel_, shape_, blocks, arguments, c10::cuda::getCurrentCUDAStream()));
}

double time_launches(const std::function<void()>& launch) {
  constexpr int kLaunches = 20, kTries = 4;
  launch();  // loads the kernel, which a capture can't do
  C10_CUDA_CHECK(cudaDeviceSynchronize());
  const capture::OwnStream stream(c10::Device(at::kCUDA, c10::cuda::current_device()));
  const capture::OwnGraph graph = captured(stream.get(), [&] {
    for (int i = 0; i < kLaunches; ++i) launch();
  });
  const capture::OwnGraphExec run = executable(graph);
  static const bool warm = [&] {  // an idle device takes milliseconds to raise its clocks
    const auto begin = std::chrono::steady_clock::now();
    do {
      C10_CUDA_CHECK(cudaGraphLaunch(run.get(), stream.get()));
      C10_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
    } while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(30));
    return true;
  }();
  static_cast<void>(warm);
  const capture::CudaEvent begin(cudaEventDefault), end(cudaEventDefault);
  float least = 0;
  for (int i = 0; i < kTries; ++i) {
    C10_CUDA_CHECK(cudaEventRecord(begin.get(), stream.get()));
    C10_CUDA_CHECK(cudaGraphLaunch(run.get(), stream.get()));
    C10_CUDA_CHECK(cudaEventRecord(end.get(), stream.get()));
    C10_CUDA_CHECK(cudaStreamSynchronize(stream.get()));
    float took = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&took, begin.get(), end.get()));
    least = i == 0 ? took : std::min(least, took);
  }
  return least / kLaunches;
}

}  // namespace millrace::program
