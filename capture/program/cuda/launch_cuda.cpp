#include "capture/program/cuda/launch_cuda.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "capture/graph_cuda.h"

namespace millrace::program {
namespace {

cudaError_t launch_kernel(const void* kernel, const LaunchShape& shape, dim3 blocks,
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
  const cudaLaunchConfig_t how{.gridDim = blocks,
                               .blockDim = dim3(unsigned(shape.threads)),
                               .dynamicSmemBytes = shape.shared_floats * sizeof(float),
                               .stream = stream,
                               .attrs = attributes.data(),
                               .numAttrs = count};
  return cudaLaunchKernelExC(&how, kernel, arguments);
}

/// Launches in a graph on a stream of its own.
class TrialGraph {
 public:
  explicit TrialGraph(const std::function<void()>& launches)
      : recording_([&] {
          const c10::cuda::CUDAStreamGuard here(
              c10::cuda::getStreamFromExternal(stream_.get(), device_.index()));
          capture::Capturing capturing(stream_.get());
          launches();
          return capturing.end();
        }()) {}
  /// Returns the duration in nanoseconds.
  std::int64_t run() {
    graph_.launch();
    MILLRACE_CHECK_CUDA(cudaStreamSynchronize(stream_.get()));
    return graph_.duration_ns();
  }

 private:
  const c10::Device device_{at::kCUDA, c10::cuda::current_device()};
  const capture::OwnStream stream_ = capture::new_stream(device_);
  const capture::CudaRecording recording_;
  capture::CudaGraph graph_{{{.recording = &recording_}}, device_, stream_.get()};
};

/// Whether a child graph can hold early launches: from sm_90 on, if the driver allows it.
bool can_come_early() {
  static const bool can = [] {
    if (device_properties().major < 9) return false;
    const void* const kernel = gpu::kernel("add_up_parts", c10::cuda::current_device(), 0);
    gpu::PartsArguments nothing{.all = {{.blocks = 1}}};
    void* arguments[] = {&nothing};
    const auto launch = [&](bool early) {
      capture::check_cuda(launch_kernel(kernel, {.threads = gpu::kThreads, .early = early}, dim3(1),
                                        arguments, c10::cuda::getCurrentCUDAStream()),
                          "launch of add_up_parts");
    };
    try {
      launch(false);  // loads the kernel, which a capture can't do
      TrialGraph([&] {
        launch(false);
        launch(true);
      }).run();
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }();
  return can;
}

}  // namespace

Launch::Launch(const std::string& expression, const LaunchShape& shape)
    : kernel_(gpu::kernel(expression, c10::cuda::current_device(),
                          shape.shared_floats * sizeof(float))),
      name_("launch of " + expression),
      shape_(shape) {
  shape_.early = shape.early && can_come_early();
}

bool Launch::lies_evenly(dim3 blocks) const {
  if (!shape_.early) return true;
  int of_sm = 0;
  MILLRACE_CHECK_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
      &of_sm, kernel_, shape_.threads, shape_.shared_floats * sizeof(float), 0));
  const double all = double(blocks.x) * blocks.y * blocks.z,
               sms = device_properties().multiProcessorCount;
  constexpr double kNearly = 0.95, kFewThreads = 128;  // an SM has time for several such blocks
  return all <= sms / 2 || all * shape_.threads <= kFewThreads * sms ||
         all >= kNearly * of_sm * sms;
}

void Launch::launch(dim3 blocks, void* arguments) const {
  if (blocks.x == 0) return;
  void* all[] = {arguments};
  capture::check_cuda(
      launch_kernel(kernel_, shape_, blocks, all, c10::cuda::getCurrentCUDAStream()), name_);
}

double time_launches(const std::function<void()>& launch) {
  constexpr int kLaunches = 20, kTries = 4;
  launch();  // loads the kernel, which a capture can't do
  MILLRACE_CHECK_CUDA(cudaDeviceSynchronize());
  TrialGraph several([&] {
    for (int i = 0; i < kLaunches; ++i) launch();
  });
  static const bool warm = [&] {  // an idle device takes milliseconds to raise its clocks
    const auto begin = std::chrono::steady_clock::now();
    do {
      several.run();
    } while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(30));
    return true;
  }();
  static_cast<void>(warm);
  std::int64_t least = several.run();
  for (int i = 1; i < kTries; ++i) least = std::min(least, several.run());
  return double(least) / kLaunches;
}

namespace {

class GpuCall final : public Prepared {
 public:
  GpuCall(const std::vector<GpuKernel>& kernels, GpuBind bind, std::size_t scratch_bytes)
      : bind_(std::move(bind)), scratch_bytes_(scratch_bytes) {
    for (const GpuKernel& k : kernels)
      launches_.emplace_back(Launch(k.expression, {k.threads, k.shared_floats, 1, true}), k.blocks);
    info.kernel = "gpu";
  }
  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  void bind(const Node& node, char* scratch) override { arguments_ = bind_(node, scratch); }
  void run(int, kernels::Share) override {
    for (const auto& [launch, blocks] : launches_)
      launch.launch(dim3(unsigned(blocks)), arguments_.get());
  }

 private:
  std::vector<std::pair<Launch, int>> launches_;
  const GpuBind bind_;
  const std::size_t scratch_bytes_;
  std::shared_ptr<void> arguments_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_launches(const std::vector<GpuKernel>& kernels, GpuBind bind,
                                           std::size_t scratch_bytes) {
  return std::make_unique<GpuCall>(kernels, std::move(bind), scratch_bytes);
}

}  // namespace millrace::program
