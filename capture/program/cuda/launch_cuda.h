#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "capture/program/cuda/arguments.h"
#include "capture/program/cuda/compiler.h"
#include "capture/program/cuda/plans.h"
#include "capture/program/operations.h"

namespace millrace::program {

inline const cudaDeviceProp& device_properties() {
  return *at::cuda::getCurrentDeviceProperties();
}

struct LaunchShape {
  int threads = 0;
  std::size_t shared_floats = 0;
  int cluster = 1;     ///< blocks per cluster, along x; divides their number
  bool early = false;  ///< may begin before the previous launch is over: start() waits for it
};

/// A kernel and its launch shape; arguments come with each launch. Thread-compatible.
class Launch {
 public:
  Launch() = default;
  /// Compiles the kernel if necessary, as gpu::kernel() does.
  Launch(const std::string& expression, const LaunchShape& shape);
  /// On the current stream; no-op for 0 blocks.
  template <class Arguments>
  void operator()(dim3 blocks, Arguments arguments) const {
    void* all[] = {&arguments};
    launch(blocks, all);
  }
  template <class Arguments>
  void operator()(int blocks, const Arguments& arguments) const {
    (*this)(dim3(unsigned(blocks)), arguments);
  }

  /// Of an early launch: whether so many blocks load all SMs alike. Otherwise they go where the last
  /// launch's blocks are not, many to an SM, and the next ones' likewise: on an H100 that took up to
  /// 1.8 times as long.
  bool lies_evenly(dim3 blocks) const;

 private:
  void launch(dim3 blocks, void** arguments) const;

  const void* kernel_ = nullptr;
  LaunchShape shape_;
};

/// Nanoseconds per `launch` in a graph of several: the minimum of some tries.
double time_launches(const std::function<void()>& launch);

template <class... Numbers>
std::string numbers(const Numbers&... all) {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + std::to_string(all)), ...);
  return text;
}

struct Kernel {
  std::string expression;
  int threads, blocks;
  std::size_t shared_floats = 0;
};

/// Launches of kernels in sequence with the same arguments: addresses and counts.
template <class Arguments>
class GpuCall final : public Prepared {
 public:
  using Bind = std::function<Arguments(const Node& node, char* scratch)>;
  GpuCall(const Node& node, const std::vector<Kernel>& kernels, Bind bind,
          std::size_t scratch_bytes = 0)
      : bind_(std::move(bind)), scratch_bytes_(scratch_bytes) {
    for (const Kernel& k : kernels)
      launches_.emplace_back(Launch(k.expression, {k.threads, k.shared_floats, 1, true}), k.blocks);
    info.name = name_of(node);
    info.kernel = "gpu";
  }
  std::size_t scratch_bytes() const override { return scratch_bytes_; }
  void bind(const Node& node, char* scratch) override { arguments_ = bind_(node, scratch); }
  void run(int, kernels::Share) override {
    for (const auto& [launch, blocks] : launches_) launch(blocks, arguments_);
  }

 private:
  std::vector<std::pair<Launch, int>> launches_;
  const Bind bind_;
  const std::size_t scratch_bytes_;
  Arguments arguments_{};
};

/// Whether its floats can be read in aligned fours.
inline bool holds_fours(const float* first) {
  return reinterpret_cast<std::uintptr_t>(first) % 16 == 0;
}
inline std::string name_of(bool value) {
  return value ? "true" : "false";
}

std::unique_ptr<Prepared> gpu_map(const Node& node);  // copies and zeros, too
std::unique_ptr<Prepared> gpu_norm(const Node& node);
std::unique_ptr<Prepared> gpu_convolution(const Node& node);

}  // namespace millrace::program
