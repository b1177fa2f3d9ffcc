#include <algorithm>

#include "capture/program/cuda/launch_cuda.h"
#include "capture/program/recording.h"

namespace millrace::program {
namespace {

std::unique_ptr<Prepared> squared_error(const Node& node) {
  const bool gradient = node.gradient;
  const int count = int(node.reads[gradient ? 1 : 0].numel());
  const int blocks = std::min(gpu::divided_up(count, 8 * gpu::kSumThreads), gpu::kSumThreads);
  std::vector<Kernel> kernels;
  if (gradient) {
    kernels = {{"squared_error_gradient", gpu::kThreads, gpu::divided_up(count, gpu::kThreads)}};
  } else {
    kernels = {{"squared_error", gpu::kSumThreads, blocks, 2 * gpu::kSumThreads}};
    if (blocks > 1)
      kernels.push_back({"squared_error_of_parts", gpu::kSumThreads, 1, 2 * gpu::kSumThreads});
  }
  return std::make_unique<GpuCall<gpu::SquaredErrorArguments>>(
      node, kernels,
      [=, through_sigmoid = node.through_sigmoid](const Node& n, char* scratch) {
        const std::size_t first = gradient ? 1 : 0;
        return gpu::SquaredErrorArguments{.prediction = floats(n.reads[first]),
                                          .target = floats(n.reads[first + 1]),
                                          .scale = gradient ? floats(n.reads[0]) : nullptr,
                                          .out = floats(n.writes[0]),
                                          .parts = reinterpret_cast<double*>(scratch),
                                          .count = count,
                                          .blocks = blocks,
                                          .through_sigmoid = through_sigmoid};
      },
      std::size_t(blocks) * sizeof(double));
}

std::unique_ptr<Prepared> softmax(const Node& node) {
  const int threads = node.matrix.row <= 256 ? 64 : 512;
  const char* const name = node.gradient ? "softmax_gradient<" : "softmax<";
  return std::make_unique<GpuCall<gpu::RowArguments>>(
      node,
      std::vector<Kernel>{{name + numbers(threads) + ">", threads, int(node.matrix.rows),
                           std::size_t(2 * threads)}},
      [row = int(node.matrix.row), logarithm = node.logarithm](const Node& n, char*) {
        return gpu::RowArguments{.a = floats(n.reads[0]),
                                 .b = n.reads.size() > 1 ? floats(n.reads[1]) : nullptr,
                                 .to = floats(n.writes[0]),
                                 .row = row,
                                 .logarithm = logarithm};
      });
}

/// Factor times the sum of each channel of an image or of each column of a matrix of pixels.
std::unique_ptr<Prepared> sums(const Node& node, float factor) {
  const at::Tensor& x = node.reads[0];
  const int channels = int(x.size(1)), pixels = int(x.size(2) * x.size(3));
  const Kernel kernel = is_image(x)
                            ? Kernel{"channel_sums", gpu::kThreads, channels, 2 * gpu::kThreads}
                            : Kernel{"column_sums", gpu::kSumThreads,
                                     gpu::divided_up(channels, gpu::kColumns), gpu::kSumThreads};
  return std::make_unique<GpuCall<gpu::SumArguments>>(
      node, std::vector{kernel}, [=](const Node& n, char*) {
        return gpu::SumArguments{.x = floats(n.reads[0]),
                                 .sums = floats(n.writes[0]),
                                 .factor = factor,
                                 .count = pixels,
                                 .columns = channels};
      });
}

std::unique_ptr<Prepared> pool(const Node& node) {
  const bool gradient = node.gradient;
  const kernels::Pool& p = node.pool;
  const int taps = kernels::taps_of(p.window);
  if (!gradient && !p.largest && p.output.height == 1 && p.output.width == 1 &&
      taps == p.input.height * p.input.width && p.window.rows.padding == 0)
    return sums(node, 1 / (p.divisor > 0 ? p.divisor : float(taps)));
  const kernels::Layout& made = gradient ? p.input : p.output;
  const auto side = [](const kernels::Taps& t) {
    return gpu::PoolTaps{t.count, t.stride, t.padding, t.dilation};
  };
  const gpu::PoolArguments shape{.channels = made.channels,
                                 .in_height = p.input.height,
                                 .in_width = p.input.width,
                                 .out_height = p.output.height,
                                 .out_width = p.output.width,
                                 .rows = side(p.window.rows),
                                 .columns = side(p.window.columns),
                                 .counts_zeros = p.counts_zeros,
                                 .divisor = p.divisor};
  return std::make_unique<GpuCall<gpu::PoolArguments>>(
      node,
      std::vector<Kernel>{{(gradient ? "pool_gradient<" : "pool<") + name_of(p.largest) + ">",
                           gpu::kThreads, gpu::divided_up(int(made.floats()), gpu::kThreads)}},
      [=](const Node& n, char*) {
        gpu::PoolArguments a = shape;
        a.to = floats(n.writes[0]);
        (gradient ? a.dy : a.x) = floats(n.reads[0]);
        if (gradient && n.reads.size() > 1) a.x = floats(n.reads[1]);
        return a;
      });
}

std::unique_ptr<Prepared> sample_of_bytes(const Node& node) {
  const kernels::Layout l = layout_of(node.writes[0]);
  const int pixels = l.height * l.width;
  return std::make_unique<GpuCall<gpu::BytesArguments>>(
      node,
      std::vector<Kernel>{
          {"sample_of_bytes", gpu::kThreads, gpu::divided_up(pixels, gpu::kThreads)}},
      [=](const Node& n, char*) {
        return gpu::BytesArguments{static_cast<const unsigned char*>(n.reads[0].const_data_ptr()),
                                   floats(n.writes[0]), l.channels, pixels};
      });
}

std::unique_ptr<Prepared> transfer(const Node& node) {
  constexpr int kMostBlocks = 32;  // so many keep PCIe busy
  const auto bytes = int(node.reads[0].nbytes());
  const auto common = std::uintptr_t(node.reads[0].const_data_ptr()) |
                      std::uintptr_t(node.writes[0].const_data_ptr()) | std::uintptr_t(bytes);
  const char* const unit = common % 16 == 0  ? "float4"
                           : common % 8 == 0 ? "double"
                           : common % 4 == 0 ? "float"
                                             : "char";
  const int blocks = std::clamp(gpu::divided_up(bytes, 16 * gpu::kThreads), 1, kMostBlocks);
  return std::make_unique<GpuCall<gpu::CopyArguments>>(
      node, std::vector<Kernel>{{std::string("copy_bytes<") + unit + ">", gpu::kThreads, blocks}},
      [=](const Node& n, char*) {
        return gpu::CopyArguments{.from = n.reads[0].const_data_ptr(),
                                  .to = n.writes[0].mutable_data_ptr(),
                                  .bytes = bytes,
                                  .blocks = blocks,
                                  .to_host = n.writes[0].is_cpu()};
      });
}

/// millrace::check_and_update.
std::unique_ptr<Prepared> update(const Node& node) {
  const stages::UpdateNumbers n = numbers_of_update(node);
  const int count = int(node.reads[0].numel());
  const int blocks = std::clamp(gpu::divided_up(count, gpu::kThreads), 1, gpu::kMostUpdateBlocks);
  static constexpr const char* rules[] = {"none", "discrepancy", "weight_prediction", "gap_aware",
                                          "dc_asgd"};
  const stages::CorrectionRule rule = n.correction.rule;
  const auto kernel = [&](const std::string& expression, int on) {
    return Kernel{expression, gpu::kThreads, on, 2 * gpu::kThreads + gpu::kFormulaFloats};
  };
  std::vector<Kernel> kernels = {
      kernel("look_at_gradient", node.reads[3].defined() ? 1 : blocks),
      kernel("update<" + numbers(n.optimizer) +
                 ", millrace::stages::CorrectionRule::" + rules[int(rule)] + ">",
             blocks)};
  if (rule == stages::CorrectionRule::gap_aware) kernels.push_back(kernel("measure_step", 1));
  const auto bind = [=](const Node& of, char* scratch) {
    gpu::UpdateArguments u{.numbers = n,
                           .notes = reinterpret_cast<gpu::UpdateNotes*>(scratch),
                           .count = count,
                           .blocks = blocks};
    bind_update(of, n, u);
    return u;
  };
  return std::make_unique<GpuCall<gpu::UpdateArguments>>(node, kernels, bind,
                                                         sizeof(gpu::UpdateNotes));
}

}  // namespace

std::unique_ptr<Prepared> prepare_on_gpu(const Node& node) {
  switch (node.kind) {
    case Kind::convolution:
      return gpu_convolution(node);
    case Kind::map:
    case Kind::copy:
    case Kind::zero:
      return gpu_map(node);
    case Kind::mse:
      return squared_error(node);
    case Kind::group_norm:
    case Kind::layer_norm:
      return gpu_norm(node);
    case Kind::softmax:
      return softmax(node);
    case Kind::pool:
      return pool(node);
    case Kind::channel_sums:
      return sums(node, node.factor);
    case Kind::update:
      return update(node);
    case Kind::sample_of_bytes:
      return sample_of_bytes(node);
    case Kind::transfer:
      return transfer(node);
    default:
      throw std::logic_error("a node that a GPU has no kernel for");
  }
}

capture::Lowering gpu_lowering(c10::Device device, const kernels::Numerics& numerics) {
  if (!gpu::missing_compiler(device.index()).empty()) return {};
  return [arena = std::make_shared<Arena>(device), numerics](const std::function<void()>& body) {
    run_dry(body);  // count bytes here: a recording keeps all it allocates
    const auto program =
        std::make_shared<Program>(body, *arena, ProgramOptions{.numerics = numerics});
    return capture::LoweredBody{[arena, program] { program->run(); }, program->operations()};
  };
}

}  // namespace millrace::program
