#include <ATen/ATen.h>

#include "capture/program/cuda/choices_cuda.h"

namespace millrace::program {
namespace {

constexpr gpu::ConvolutionTile kFmaTiles[] = {
#define TILE(...) {__VA_ARGS__},
    MILLRACE_FMA_TILES(TILE)};
constexpr gpu::ConvolutionTile kTensorTiles[] = {MILLRACE_TENSOR_TILES(TILE)};
#undef TILE

using ConvolutionChoice = Candidate<gpu::ConvolutionTile>;

gpu::ConvolutionPlan plan(const ConvolutionShape& shape, const ConvolutionChoice& choice) {
  return gpu::ConvolutionPlan(shape.y, shape.x, choice.products, choice.tile);
}
dim3 blocks(const ConvolutionShape& shape, const ConvolutionChoice& choice) {
  const gpu::ConvolutionTile& t = choice.tile;
  return {unsigned(gpu::divided_up(shape.to.width, t.width) * choice.cluster),
          unsigned(gpu::divided_up(shape.to.height, t.height)),
          unsigned(gpu::divided_up(shape.to.channels, t.block_channels) * shape.groups)};
}

double cost_of(const ConvolutionShape& shape, const ConvolutionChoice& choice) {
  const gpu::ConvolutionTile& t = choice.tile;
  const int chunks = gpu::divided_up(shape.from.channels, t.chunk);
  const dim3 grid = blocks(shape, choice);
  const int all = int(grid.x * grid.y * grid.z);
  const bool clusters = device_properties().major >= 9 && chunks >= 2 * choice.cluster &&
                        all <= 2 * device_properties().multiProcessorCount;
  const int deep = choice.products == gpu::Products::half ? 16 : 8;
  const gpu::ConvolutionPlan made = plan(shape, choice);
  if ((choice.cluster > 1 && !clusters) ||
      (gpu::by_tensor_cores(choice.products) && t.chunk < deep * t.parts) ||
      !fits(made.floats(chunks), t.threads(choice.products)))
    return kNever;
  const double weights = double(made.taps) * t.chunk * t.block_channels;
  const double of_chunks = double(all) * gpu::divided_up(chunks, choice.cluster);
  return cost(of_chunks * t.width * t.height * t.block_channels * t.chunk * made.taps,
              of_chunks * (made.input / 4 * kCopy + weights * kWeightCopy), choice.products, all,
              t.threads(choice.products), t.channels * t.run);
}

std::vector<ConvolutionChoice> candidates(const kernels::Convolution& c,
                                          const ConvolutionShape& shape) {
  if (shape.plain()) return {};
  std::vector<ConvolutionChoice> all;
  for (const gpu::Products products : products_of(c, shape)) {
    for (const auto& tile : of_kind(products, kTensorTiles, kFmaTiles)) {
      for (int cluster = 1; cluster <= 8; cluster *= 2) {
        all.push_back({products, tile, cluster});
        all.back().cost = cost_of(shape, all.back());
      }
    }
  }
  all = best_of(std::move(all));
  for (ConvolutionChoice& choice : all) choice.early = shape.flops < kEarly;
  if (!c.tuned || device_properties().major < 9) return all;
  // Each also with the other kind of launch. Early ones begin sooner, but the blocks of two of them
  // may share an SM while another is idle.
  for (std::size_t i = 0, count = all.size(); i < count; ++i) {
    all.push_back(all[i]);
    all.back().early = !all[i].early;
  }
  return all;
}

class GpuConvolution final : public Prepared {
  using Choice = ConvolutionChoice;

 public:
  explicit GpuConvolution(const Convolve& of)
      : c_(of.convolution),
        weights_early_(of.weights_early),
        shape_(c_),
        arguments_{.groups = shape_.groups,
                   .from = shape_.from,
                   .to = shape_.to,
                   .taps = shape_.taps(),
                   .activation = c_.activation} {
    info.name = describe(c_);
    info.flops = shape_.flops;
    const std::vector<Choice> choices = candidates(c_, shape_);
    if (choices.empty()) {
      info.kernel = "gpu plain";
      const int made = int(shape_.to.floats()) * shape_.groups;
      blocks_ = dim3(unsigned(gpu::divided_up(made, gpu::kThreads)));
      launch_ =
          Launch("plain_convolution<" + shape_.window + flag() + ">", {gpu::kThreads, 0, 1, true});
    } else {
      Choice chosen = choose<gpu::ConvolutionTile>(
          choices, c_.tuned, task_of(c_), [&](const Choice& choice) { return expression(choice); },
          [&](const Choice& choice) { return time(choice); });
      take(chosen);
      if (c_.tuned || launch_.lies_evenly(blocks_)) return;
      chosen.early = false;
      take(chosen);
    }
  }
  void bind(const Node& node, char*) override {
    const bool third = node.reads.size() > 2;
    arguments_.bias = third && !shape_.gradient ? floats(node.reads[2]) : nullptr;
    arguments_.mask = third && shape_.gradient ? floats(node.reads[2]) : nullptr;
    arguments_.weights_early = weights_early_;
    point(arguments_, floats(node.reads[0]), floats(node.reads[1]), floats(node.writes[0]));
  }
  void run(int, kernels::Share) override { launch_(blocks_, arguments_); }

 private:
  void point(gpu::ConvolutionArguments& a, const float* in, const float* weights,
             float* out) const {
    a.in = in;
    a.weights = weights;
    a.out = out;
    a.fours = shape_.from.width % 4 == 0 && holds_fours(in);
    a.writes_fours = shape_.to.width % 4 == 0 && holds_fours(out) && holds_fours(a.mask);
  }
  std::string flag() const { return shape_.gradient ? ", true" : ", false"; }
  std::string expression(const Choice& choice) const {
    return "convolution<" + shape_.window + flag() + ", " + choice.arguments();
  }
  void take(const Choice& choice) {
    info.kernel = "gpu " + choice.name();
    blocks_ = blocks(shape_, choice);
    const int chunks = gpu::divided_up(shape_.from.channels, choice.tile.chunk);
    launch_ = Launch(expression(choice), {choice.tile.threads(choice.products),
                                          std::size_t(plan(shape_, choice).floats(chunks)),
                                          choice.cluster, choice.early});
  }

  /// Each launch reads what the last one wrote, with other weights, as in a step.
  double time(const Choice& choice) {
    constexpr int kLayers = 4;
    const double larger = double(std::max(c_.input.floats(), c_.output.floats()));
    const at::Tensor images[] = {some_floats(larger), some_floats(larger)};
    const std::int64_t count = std::int64_t(shape_.groups) * shape_.in * shape_.out * shape_.taps();
    const at::Tensor weights = some_floats(double(kLayers * count));
    take(choice);
    if (!launch_.lies_evenly(blocks_)) return kNever;
    gpu::ConvolutionArguments arguments = arguments_;
    arguments.weights_early = true;
    MILLRACE_CHECK_CUDA(cudaDeviceSynchronize());  // zeros are written
    int launched = 0;
    return time_launches([&] {
      point(arguments, floats(images[launched % 2]), floats(weights) + launched % kLayers * count,
            floats(images[1 - launched % 2]));
      ++launched;
      launch_(blocks_, arguments);
    });
  }

  const kernels::Convolution c_;
  const bool weights_early_;
  const ConvolutionShape shape_;
  gpu::ConvolutionArguments arguments_;
  Launch launch_;
  dim3 blocks_;
};

}  // namespace

KernelChoice kernel_choice(const kernels::Convolution& c) {
  std::vector<std::string> names = c.pass == kernels::Pass::kWeightGradient
                                       ? weight_gradient_kernels(c)
                                       : names_of(candidates(c, ConvolutionShape(c)));
  if (names.empty()) return {};
  return {task_of(c), std::move(names)};
}

std::unique_ptr<Prepared> launched_convolution(const Node& node) {
  const Convolve& of = *as_convolution(node);
  if (of.convolution.pass == kernels::Pass::kWeightGradient) return gpu_weight_gradients(of.group);
  return std::make_unique<GpuConvolution>(of);
}

}  // namespace millrace::program
