#include "capture/program/cuda/operations.h"

#include <algorithm>

#include "capture/program/cuda/arguments.h"
#include "capture/program/cuda/launch_cuda.h"
#include "capture/program/cuda/plans.h"
#include "capture/program/recording.h"

namespace millrace::program {
namespace {

std::unique_ptr<Prepared> elementwise(const Node& node) {
  const int count = int(node.writes[0].numel());
  const std::string name = kernels::name_of(node.map.function);
  std::string function = name;
  std::replace(function.begin(), function.end(), ' ', '_');
  return std::make_unique<GpuCall<gpu::ElementwiseArguments>>(
      name, "elementwise<millrace::gpu::Elementwise::" + function + ">", gpu::kThreads,
      gpu::divided_up(count, gpu::kThreads), 0, [count](const Node& n) {
        return gpu::ElementwiseArguments{.a = floats(n.reads[0]),
                                         .b = n.reads.size() > 1 ? floats(n.reads[1]) : nullptr,
                                         .out = floats(n.writes[0]),
                                         .count = count};
      });
}

std::unique_ptr<Prepared> copy(const Node& node) {
  const at::Tensor& to = node.writes[0];
  const int count = int(to.numel());
  return std::make_unique<GpuCall<gpu::CopyArguments>>(
      "copy", "copy_strided", gpu::kThreads, gpu::divided_up(count, gpu::kThreads), 0,
      [](const Node& n) {
        const at::Tensor &from = n.reads[0], &to = n.writes[0];
        gpu::CopyArguments c{.from = floats(from), .to = floats(to), .sizes = {1, 1, 1, 1}};
        for (std::int64_t d = 0; d < to.dim(); ++d) {
          const auto at = std::size_t(4 - to.dim() + d);
          c.sizes[at] = int(to.size(d));
          c.from_strides[at] = int(from.stride(d));
          c.to_strides[at] = int(to.stride(d));
        }
        return c;
      });
}

std::unique_ptr<Prepared> squared_error(const Node& node) {
  const bool gradient = node.kind == Kind::mse_gradient;
  const int count = int(node.reads[gradient ? 1 : 0].numel());
  const auto bind = [=, through_sigmoid = node.through_sigmoid](const Node& n) {
    const std::size_t first = gradient ? 1 : 0;
    return gpu::SquaredErrorArguments{.prediction = floats(n.reads[first]),
                                      .target = floats(n.reads[first + 1]),
                                      .scale = gradient ? floats(n.reads[0]) : nullptr,
                                      .out = floats(n.writes[0]),
                                      .count = count,
                                      .through_sigmoid = through_sigmoid};
  };
  using Call = GpuCall<gpu::SquaredErrorArguments>;
  if (!gradient) {
    return std::make_unique<Call>("mean squared error", "squared_error", gpu::kSumThreads, 1,
                                  gpu::kSumThreads, bind);
  }
  return std::make_unique<Call>("mean squared error's gradient", "squared_error_gradient",
                                gpu::kThreads, gpu::divided_up(count, gpu::kThreads), 0, bind);
}

class Lowered final : public capture::LoweredBody {
 public:
  Lowered(const std::function<void()>& body, std::shared_ptr<Arena> arena,
          const kernels::Numerics& numerics)
      : arena_(std::move(arena)), program_(body, *arena_, {.numerics = numerics}) {}
  void run() override { program_.run(); }
  std::vector<capture::OperationInfo> operations() const override { return program_.operations(); }

 private:
  const std::shared_ptr<Arena> arena_;
  Program program_;
};

}  // namespace

std::unique_ptr<Prepared> prepare_on_gpu(const Node& node) {
  switch (node.kind) {
    case Kind::convolution:
    case Kind::data_gradient:
      return gpu_convolution(node);
    case Kind::weight_gradient:
      return gpu_weight_gradients(node);
    case Kind::map:
      return elementwise(node);
    case Kind::mse:
    case Kind::mse_gradient:
      return squared_error(node);
    case Kind::copy:
      return copy(node);
    default:
      throw std::logic_error("a node that a GPU has no kernel for");
  }
}

capture::Lowering gpu_lowering(c10::Device device, const kernels::Numerics& numerics) {
  if (!gpu::missing_compiler(device.index()).empty()) return {};
  return [arena = std::make_shared<Arena>(device), numerics](const std::function<void()>& body) {
    run_dry(body);  // recording keeps all that is allocated: bytes are counted here
    return std::make_unique<Lowered>(body, arena, numerics);
  };
}

}  // namespace millrace::program
