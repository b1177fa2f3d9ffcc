#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "capture/program/cuda/cache.h"
#include "capture/program/cuda/launch_cuda.h"

namespace millrace::program {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Numbers of operations, measured on an H100.
constexpr double kEarly = 1.5e8;   ///< with fewer, early launches are faster
constexpr double kTogether = 1e9;  ///< with fewer, weight gradients are faster in one launch

constexpr gpu::ConvolutionTile kFmaTiles[] = {
#define TILE(...) {__VA_ARGS__},
    MILLRACE_FMA_TILES(TILE)};
constexpr gpu::ConvolutionTile kTensorTiles[] = {MILLRACE_TENSOR_TILES(TILE)};
constexpr gpu::WeightGradientTile kFmaGradientTiles[] = {MILLRACE_FMA_GRADIENT_TILES(TILE)};
constexpr gpu::WeightGradientTile kTensorGradientTiles[] = {MILLRACE_TENSOR_GRADIENT_TILES(TILE)};
#undef TILE

template <class Tile, std::size_t kTensor, std::size_t kFma>
std::span<const Tile> of_kind(gpu::Products products, const Tile (&tensor)[kTensor],
                              const Tile (&fma)[kFma]) {
  if (by_tensor_cores(products)) return tensor;
  return fma;
}

const char* name_of(gpu::Products products) {
  static constexpr const char* names[] = {"fma", "tf32", "exact_tf32", "half"};
  return names[int(products)];
}
std::string in_namespace(const std::string& what) {
  return "millrace::gpu::" + what;
}
std::string text_of(const gpu::ConvolutionTile& t) {
  return numbers(t.width, t.height, t.run, t.block_channels, t.channels, t.chunk, t.parts);
}
std::string text_of(const gpu::WeightGradientTile& t) {
  return numbers(t.width, t.height, t.in, t.out, t.warp_out, t.sharers);
}

/// A convolution as kernels see it: channels per group, the window as a template argument.
struct Shape {
  explicit Shape(const kernels::Convolution& c)
      : groups(c.groups),
        in(c.input.channels / c.groups),
        out(c.output.channels / c.groups),
        flops(kernels::flops(c)),
        gradient(c.pass == kernels::Pass::kDataGradient),
        from(gradient ? c.output : c.input),
        to(gradient ? c.input : c.output) {
    const auto [rows, columns] = kernels::window_of(c);
    window = in_namespace("Window<" +
                          numbers(rows.count, columns.count, rows.stride, columns.stride,
                                  rows.dilation, columns.dilation, rows.padding, columns.padding) +
                          ">");
    const auto side = [&](const kernels::Taps& t) {
      return gpu::side_of(t.count, t.stride, t.dilation, t.padding, gradient);
    };
    y = side(rows);
    x = side(columns);
  }
  int taps() const { return y.taps * x.taps; }
  /// Tiles would be mostly empty.
  bool plain() const { return groups > 1 && std::min(in, out) < 8; }

  /// Channels per group read and written.
  int taken() const { return gradient ? out : in; }
  int made() const { return gradient ? in : out; }

  int groups, in, out;
  double flops;
  bool gradient;
  kernels::Layout from, to;  ///< of the forward or the data gradient
  std::string window;
  gpu::Side y{}, x{};
};

/// Kinds of products that the precision allows and that pay off.
std::vector<gpu::Products> products_of(const kernels::Convolution& c, const Shape& shape) {
  constexpr int kFewest = 16, kMostTaps = 7;  // channels; a row's taps are in registers
  constexpr double kLarge = 1e8;              // operations
  std::vector<gpu::Products> all = {gpu::Products::fma};
  if (std::min(shape.in, shape.out) < kFewest || shape.x.taps > kMostTaps) return all;
  if (c.precision == kernels::Precision::kFloat32) {
    if (shape.flops >= kLarge) all.push_back(gpu::Products::exact_tf32);
    return all;
  }
  all.push_back(gpu::Products::tf32);
  if (c.precision == kernels::Precision::kBf16) all.push_back(gpu::Products::half);
  return all;
}

/// Instructions per copy to shared memory: of four pixels; of a weight.
constexpr double kCopy = 18, kWeightCopy = 10;

/// Relative time of `sums` multiply-adds and `copies` copy instructions in total: an SM needs some
/// 256 threads, and a thread with few sums is bound by loads.
double cost(double sums, double copies, gpu::Products products, int blocks, int threads,
            int sums_of_thread) {
  static constexpr double speeds[] = {1, 2.6, 1.3, 2.8};  // on an H100, with full tiles
  const double busy =
      std::min(1.0, double(blocks) * threads / (256.0 * device_properties().multiProcessorCount));
  const double in_registers =
      by_tensor_cores(products) ? 1 : sums_of_thread / (sums_of_thread + 8.);
  return (sums / in_registers / speeds[int(products)] + copies) / busy;
}

bool fits(int floats, int threads) {
  return std::size_t(floats) * sizeof(float) <= device_properties().sharedMemPerBlockOptin &&
         threads <= device_properties().maxThreadsPerBlock;
}

template <class Tile>
struct Candidate {
  gpu::Products products = gpu::Products::fma;
  Tile tile{};
  int cluster = 1;
  bool early = false;  ///< a convolution: launched early
  double cost = kNever;

  std::string name() const {
    return std::string(name_of(products)) + " " + text_of(tile) +
           (cluster > 1 ? " by " + std::to_string(cluster) : "") + (early ? " early" : "");
  }
};

/// The most promising few, for each kind of products the cheapest first. Of 87 convolutions timed
/// on an H100, the best of them is on average 0.7 % slower than the best of all.
template <class Tile>
std::vector<Candidate<Tile>> best_of(std::vector<Candidate<Tile>> all) {
  constexpr int kOfFma = 7, kOfTensor = 3;
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.cost < b.cost; });
  int kept[4] = {};
  std::erase_if(all, [&](const auto& candidate) {
    return candidate.cost == kNever ||
           kept[int(candidate.products)]++ >=
               (by_tensor_cores(candidate.products) ? kOfTensor : kOfFma);
  });
  TORCH_CHECK(!all.empty(), "no kernel for a convolution");
  return all;
}

template <class Tile>
std::vector<std::string> names_of(const std::vector<Candidate<Tile>>& all) {
  std::vector<std::string> names;
  for (const auto& candidate : all) names.push_back(candidate.name());
  return names;
}

/// The first, or, if tuned, the one timed as fastest.
template <class Tile>
Candidate<Tile> choose(const std::vector<Candidate<Tile>>& all, bool tuned, const std::string& task,
                       const std::function<std::string(const Candidate<Tile>&)>& expression,
                       const std::function<double(const Candidate<Tile>&)>& time) {
  if (!tuned) return all.front();
  bool compiled = false;
  return all[gpu::choose(task, names_of(all), [&](std::size_t i) {
    try {
      if (!std::exchange(compiled, true)) {
        std::vector<std::string> expressions;
        for (const auto& candidate : all) expressions.push_back(expression(candidate));
        gpu::prepare_kernels(expressions, c10::cuda::current_device());
      }
      return time(all[i]);
    } catch (const std::exception&) {  // no memory to try it in, or it doesn't fit the device
      cudaGetLastError();
      return kNever;
    }
  })];
}

/// \param share of this work in its launch.
std::string task_of(const kernels::Convolution& c, double share = 1) {
  std::string task = std::string(device_properties().name) + ": " + describe(c) + " " +
                     kernels::kPrecisionNames[int(c.precision)];
  return share < 1 ? task + ", " + std::to_string(int(std::ceil(64 * share))) + "/64" : task;
}

at::Tensor some_floats(double count) {
  return at::zeros({std::int64_t(count)}, at::device(at::kCUDA).dtype(at::kFloat));
}

// ---- Forward or data gradient.

using ConvolutionChoice = Candidate<gpu::ConvolutionTile>;

gpu::ConvolutionPlan plan(const Shape& shape, const ConvolutionChoice& choice) {
  return gpu::ConvolutionPlan(shape.y, shape.x, choice.products, choice.tile);
}
int blocks(const Shape& shape, const gpu::ConvolutionTile& t) {
  return gpu::divided_up(shape.to.width, t.width) * gpu::divided_up(shape.to.height, t.height) *
         gpu::divided_up(shape.made(), t.block_channels) * shape.groups;
}

double cost_of(const Shape& shape, const ConvolutionChoice& choice) {
  const gpu::ConvolutionTile& t = choice.tile;
  const int chunks = gpu::divided_up(shape.taken(), t.chunk);
  const int all = blocks(shape, t) * choice.cluster;
  const bool clusters = device_properties().major >= 9 && chunks >= 2 * choice.cluster &&
                        all <= 2 * device_properties().multiProcessorCount;
  const int deep = choice.products == gpu::Products::half ? 16 : 8;
  if ((choice.cluster > 1 && !clusters) ||
      (gpu::by_tensor_cores(choice.products) && t.chunk < deep * t.parts) ||
      !fits(plan(shape, choice).floats, t.threads(choice.products)))
    return kNever;
  const gpu::ConvolutionPlan made = plan(shape, choice);
  const double weights = double(made.taps) * t.chunk * t.block_channels;
  const double of_chunks = double(all) * gpu::divided_up(chunks, choice.cluster);
  return cost(of_chunks * t.width * t.height * t.block_channels * t.chunk * made.taps,
              of_chunks * (made.input / 4 * kCopy + weights * kWeightCopy), choice.products, all,
              t.threads(choice.products), t.channels * t.run);
}

std::vector<ConvolutionChoice> candidates(const kernels::Convolution& c, const Shape& shape) {
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
  explicit GpuConvolution(const Node& node)
      : c_(node.convolution),
        shape_(c_),
        arguments_{.groups = shape_.groups,
                   .in_channels = shape_.taken(),
                   .in_height = shape_.from.height,
                   .in_width = shape_.from.width,
                   .out_channels = shape_.made(),
                   .out_height = shape_.to.height,
                   .out_width = shape_.to.width,
                   .taps = shape_.taps(),
                   .activation = gpu::Activation(int(c_.activation))} {
    info.name = describe(c_);
    info.flops = shape_.flops;
    if (shape_.plain()) {
      info.kernel = "gpu plain";
      blocks_ = gpu::divided_up(int(shape_.to.floats()), gpu::kThreads);
      launch_ =
          Launch("plain_convolution<" + shape_.window + flag() + ">", {gpu::kThreads, 0, 1, true});
    } else {
      take(choose<gpu::ConvolutionTile>(
          candidates(c_, shape_), c_.tuned, task_of(c_),
          [&](const Choice& choice) { return expression(choice); },
          [&](const Choice& choice) { return time(choice); }));
    }
  }
  void bind(const Node& node, char*) override {
    const bool third = node.reads.size() > 2;
    arguments_.bias = third && !shape_.gradient ? floats(node.reads[2]) : nullptr;
    arguments_.mask = third && shape_.gradient ? floats(node.reads[2]) : nullptr;
    arguments_.weights_early = node.weights_early;
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
    return "convolution<" + shape_.window + flag() + ", " + in_namespace("Products::") +
           name_of(choice.products) + ", " + text_of(choice.tile) + ">";
  }
  void take(const Choice& choice) {
    blocks_ = blocks(shape_, choice.tile) * choice.cluster;
    info.kernel = "gpu " + choice.name();
    launch_ = Launch(expression(choice),
                     {choice.tile.threads(choice.products),
                      std::size_t(plan(shape_, choice).floats), choice.cluster, choice.early});
  }

  double time(const Choice& choice) {
    const at::Tensor in = some_floats(double(shape_.from.floats())),
                     out = some_floats(double(shape_.to.floats())),
                     weights = some_floats(double(shape_.groups) * shape_.in * shape_.out *
                                           shape_.taps());
    take(choice);
    gpu::ConvolutionArguments arguments = arguments_;
    arguments.weights_early = true;
    point(arguments, floats(in), floats(weights), floats(out));
    C10_CUDA_CHECK(cudaDeviceSynchronize());  // zeros are written
    return time_launches([&] { launch_(blocks_, arguments); });
  }

  const kernels::Convolution c_;
  const Shape shape_;
  gpu::ConvolutionArguments arguments_;
  Launch launch_;
  int blocks_ = 0;
};

// ---- Weight gradients.

/// A launch of several pieces of work, each with its own blocks.
template <class Arguments>
struct Batch {
  Arguments arguments{};
  std::size_t count = 0;
  int blocks = 0;
};
template <class Arguments, class Work>
void add_work(std::vector<Batch<Arguments>>& batches, const Work& work, std::size_t most) {
  if (batches.empty() || batches.back().count == most) batches.emplace_back();
  Batch<Arguments>& batch = batches.back();
  batch.arguments.all[batch.count++] = work;
  batch.blocks += work.blocks;
}

using GradientChoice = Candidate<gpu::WeightGradientTile>;

gpu::WeightGradientPlan plan(const Shape& shape, const GradientChoice& choice) {
  return gpu::WeightGradientPlan(shape.y, shape.x, choice.products, choice.tile);
}
/// Per slice.
int blocks(const Shape& shape, const GradientChoice& choice) {
  return gpu::divided_up(shape.in, choice.tile.in) * gpu::divided_up(shape.out, choice.tile.out) *
         plan(shape, choice).row_blocks * shape.groups;
}
int tiles(const kernels::Convolution& c, const gpu::WeightGradientTile& t) {
  return gpu::divided_up(c.output.width, t.width) * gpu::divided_up(c.output.height, t.height);
}
/// \param share of this work in all concurrent work.
std::vector<GradientChoice> gradient_candidates(const kernels::Convolution& c, const Shape& shape,
                                                double share = 1) {
  std::vector<GradientChoice> all;
  for (const gpu::Products products : products_of(c, shape)) {
    for (const auto& tile : of_kind(products, kTensorGradientTiles, kFmaGradientTiles)) {
      GradientChoice choice{products, tile};
      const gpu::WeightGradientPlan made = plan(shape, choice);
      const int threads = tile.threads(products);
      if (fits(made.floats, threads)) {
        const double of_tiles = double(tiles(c, tile)) * blocks(shape, choice);
        choice.cost = cost(
            of_tiles * tile.width * tile.height * tile.in * tile.out * made.tap_rows * made.x.taps,
            of_tiles * made.stage / 4 * kCopy, products, int(of_tiles / share), threads,
            threads >= 128 ? 64 : 32);
      }
      all.push_back(choice);
    }
  }
  return best_of(std::move(all));
}

/// Weight gradients of several convolutions: one launch per kernel, and one that sums all parts.
class GpuWeightGradients final : public Prepared {
  using Choice = GradientChoice;

 public:
  explicit GpuWeightGradients(const Node& node) {
    for (const kernels::Convolution& c : node.group) info.flops += kernels::flops(c);
    add_up_ = Launch("add_up_parts", {gpu::kThreads, 0, 1, true});
    info.name = "weight gradients of " + std::to_string(node.group.size()) + " convolutions";
    info.kernel = "gpu";
    for (std::size_t i = 0; i < node.group.size(); ++i) choose_for(node.group, i);
    for (Group& group : groups_) slice(group, node.group);
    for (const Group& group : groups_)
      info.kernel += (&group == &groups_[0] ? " " : "; ") + group.name;
  }
  std::size_t scratch_bytes() const override { return scratch_floats_ * sizeof(float); }
  void bind(const Node& node, char* scratch) override {
    auto* memory = reinterpret_cast<float*>(scratch);
    sums_.clear();
    for (Group& group : groups_) {
      group.batches.clear();
      for (const Member& member : group.members) {
        const kernels::Convolution& c = node.group[member.index];
        const at::Tensor &dw = node.writes[2 * member.index],
                         &db = node.writes[2 * member.index + 1];
        gpu::WeightGradient work = member.work;
        const int weights = weights_of(work), outs = work.groups * work.out_channels;
        point(work, floats(node.reads[2 * member.index + 1]), floats(node.reads[2 * member.index]));
        if (writes_sums(c, work)) {
          work.parts = floats(dw);
          work.bias_parts = db.defined() ? floats(db) : nullptr;
          add_work(group.batches, work, group.together);
          continue;
        }
        work.parts = memory;
        memory += std::size_t(work.slices) * weights;
        work.bias_parts = db.defined() ? memory : nullptr;
        if (db.defined()) memory += std::size_t(work.slices) * outs;
        add_work(group.batches, work, group.together);
        add_sum(work.parts, floats(dw), work.slices, weights, c.accumulate);
        if (db.defined()) add_sum(work.bias_parts, floats(db), work.slices, outs, c.accumulate);
      }
    }
  }
  void run(int, kernels::Share) override {
    for (const Group& group : groups_) {
      for (const auto& batch : group.batches) group.launch(batch.blocks, batch.arguments);
    }
    for (const auto& batch : sums_) add_up_(batch.blocks, batch.arguments);
  }

 private:
  struct Member {
    std::size_t index;  ///< in the node
    gpu::WeightGradient work;
    int blocks = 1, tiles = 1;  ///< per slice; at most as many slices as tiles
  };
  struct Group {
    std::string expression, name;
    std::size_t together;  ///< most in a launch
    int threads;
    Launch launch;
    std::vector<Member> members;
    std::vector<Batch<gpu::WeightGradientArguments>> batches;
  };

  LaunchShape launched(const Shape& shape, const Choice& choice) const {
    return {choice.tile.threads(choice.products), std::size_t(plan(shape, choice).floats), 1,
            info.flops < 3 * kEarly};
  }
  /// With a single slice there is nothing to add up.
  static bool writes_sums(const kernels::Convolution& c, const gpu::WeightGradient& g) {
    return g.slices == 1 && !c.accumulate;
  }
  static int weights_of(const gpu::WeightGradient& g) {
    return g.groups * g.out_channels * g.in_channels * g.taps;
  }
  static std::string expression(const Shape& shape, const Choice& choice) {
    return "weight_gradients<" + shape.window + ", " + in_namespace("Products::") +
           name_of(choice.products) + ", " + text_of(choice.tile) + ">";
  }
  static gpu::WeightGradient work_of(const kernels::Convolution& c, const Shape& shape) {
    return {.groups = shape.groups,
            .in_channels = shape.in,
            .in_height = c.input.height,
            .in_width = c.input.width,
            .out_channels = shape.out,
            .out_height = c.output.height,
            .out_width = c.output.width,
            .taps = shape.taps(),
            .slices = 1,
            .blocks = shape.groups * shape.out * shape.in};
  }
  static void point(gpu::WeightGradient& work, const float* x, const float* dy) {
    work.x = x;
    work.dy = dy;
    work.fours = work.in_width % 4 == 0 && holds_fours(x);
    work.dy_fours = work.out_width % 4 == 0 && holds_fours(dy);
  }

  /// Cuts a launch into slices: the tiles per block for which the device is done first, if all
  /// tiles take the same time. A block's start and end take about as long as one.
  static void slice(std::vector<Member>& members, int threads) {
    const int at_once = device_properties().multiProcessorCount * std::max(1, 256 / threads);
    int most = 1, best = 1;
    for (const Member& member : members) most = std::max(most, member.tiles);
    double least = kNever;
    for (int each = 1; each <= most; ++each) {
      int blocks = 0;
      for (const Member& member : members)
        blocks += member.blocks * gpu::divided_up(member.tiles, each);
      const double time = double(gpu::divided_up(blocks, at_once)) * (each + 1);
      if (time < least) best = each, least = time;
      if (blocks <= at_once) break;
    }
    for (Member& member : members) {
      member.work.slices = gpu::divided_up(member.tiles, best);
      member.work.blocks = member.work.slices * member.blocks;
    }
  }

  /// Whether both would be in one launch if each took its best kernel: they share a window and both
  /// or neither have few channels. A small launch holds all of a window.
  bool meets(const Shape& a, const Shape& b) const {
    constexpr int kFew = 8;
    return !a.plain() && !b.plain() && a.window == b.window &&
           (info.flops < kTogether ||
            ((a.in < kFew) == (b.in < kFew) && (a.out < kFew) == (b.out < kFew)));
  }

  void choose_for(const std::vector<kernels::Convolution>& all, std::size_t index) {
    const Shape own(all[index]);
    if (own.plain()) {
      Group& group = group_of("plain_weight_gradient<" + own.window + ">", "plain", 1,
                              {gpu::kThreads, 2 * gpu::kThreads, 1, true});
      group.members.push_back({index, work_of(all[index], own)});
      return;
    }
    std::vector<std::size_t> together;
    std::size_t largest = index;  // decides for a whole small launch
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Shape other(all[i]);
      if (!meets(own, other)) continue;
      together.push_back(i);
      if (info.flops < kTogether && other.flops > kernels::flops(all[largest])) largest = i;
    }
    const Choice choice = choose_kernel(all, together, largest);
    Group& group = group_of(expression(own, choice), choice.name(), gpu::kMostWeightGradients,
                            launched(own, choice));
    group.members.push_back(member_of(all, index, choice));
  }

  static Member member_of(const std::vector<kernels::Convolution>& all, std::size_t index,
                          const Choice& choice) {
    const Shape shape(all[index]);
    return {index, work_of(all[index], shape), blocks(shape, choice),
            tiles(all[index], choice.tile)};
  }

  /// For the launch of `together`, named after the largest of them.
  Choice choose_kernel(const std::vector<kernels::Convolution>& all,
                       const std::vector<std::size_t>& together, std::size_t largest) const {
    const kernels::Convolution& c = all[largest];
    const Shape shape(c);
    double flops = 0;
    std::int64_t in = 0, out = 0;
    for (const std::size_t i : together) {
      flops += kernels::flops(all[i]);
      in = std::max<std::int64_t>(in, all[i].input.floats());
      out = std::max<std::int64_t>(out, all[i].output.floats());
    }
    const double share = shape.flops / flops;
    return choose<gpu::WeightGradientTile>(
        gradient_candidates(c, shape, share), c.tuned, task_of(c, share),
        [&](const Choice& tried) { return expression(shape, tried); },
        [&](const Choice& tried) {
          std::vector<Member> members;
          for (const std::size_t i : together) members.push_back(member_of(all, i, tried));
          slice(members, tried.tile.threads(tried.products));
          const at::Tensor x = some_floats(double(in)), dy = some_floats(double(out));
          std::vector<at::Tensor> parts;
          std::vector<Batch<gpu::WeightGradientArguments>> batches;
          for (Member& member : members) {
            parts.push_back(some_floats(double(member.work.slices) * weights_of(member.work)));
            point(member.work, floats(x), floats(dy));
            member.work.parts = floats(parts.back());
            add_work(batches, member.work, gpu::kMostWeightGradients);
          }
          const Launch launch(expression(shape, tried), launched(shape, tried));
          C10_CUDA_CHECK(cudaDeviceSynchronize());  // zeros are written
          return time_launches([&] {
            for (const auto& batch : batches) launch(batch.blocks, batch.arguments);
          });
        });
  }

  Group& group_of(const std::string& expression, const std::string& name, std::size_t together,
                  const LaunchShape& how) {
    for (Group& group : groups_) {
      if (group.expression == expression) return group;
    }
    groups_.push_back({expression, name, together, how.threads, Launch(expression, how), {}, {}});
    return groups_.back();
  }

  void slice(Group& group, const std::vector<kernels::Convolution>& all) {
    if (group.together > 1) slice(group.members, group.threads);
    for (const Member& member : group.members) {
      const gpu::WeightGradient& work = member.work;
      if (writes_sums(all[member.index], work)) continue;
      scratch_floats_ +=
          std::size_t(work.slices) * (weights_of(work) + work.groups * work.out_channels);
    }
  }

  void add_sum(const float* parts, float* sum, int slices, int count, bool accumulate) {
    add_work(
        sums_,
        gpu::Parts{parts, sum, slices, count, accumulate, gpu::divided_up(count, gpu::kThreads)},
        2 * gpu::kMostWeightGradients);
  }

  Launch add_up_;
  std::vector<Group> groups_;
  std::vector<Batch<gpu::PartsArguments>> sums_;
  std::size_t scratch_floats_ = 0;
};

}  // namespace

KernelChoice kernel_choice(const kernels::Convolution& c) {
  const Shape shape(c);
  if (shape.plain()) return {};
  return {task_of(c), c.pass == kernels::Pass::kWeightGradient
                          ? names_of(gradient_candidates(c, shape))
                          : names_of(candidates(c, shape))};
}

std::unique_ptr<Prepared> gpu_convolution(const Node& node) {
  if (is_pass(node, kernels::Pass::kWeightGradient))
    return std::make_unique<GpuWeightGradients>(node);
  return std::make_unique<GpuConvolution>(node);
}

namespace {

bool meets(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](const at::Tensor& t) { return t.defined() && touches(b, range_of(t)); });
}

/// Each alone keeps few SMs busy; one launch at the last one's place computes several.
void gather_weight_gradients(std::vector<Node>& nodes) {
  std::size_t last = nodes.size();
  for (std::size_t i = nodes.size(); i-- > 0;) {
    if (!is_pass(nodes[i], kernels::Pass::kWeightGradient)) continue;
    Node& node = nodes[i];
    bool can_wait =
        true;  // nobody in between writes what it reads, or has to do with what it writes
    for (std::size_t k = i + 1; last < nodes.size() && k <= last; ++k)
      can_wait &= !meets(nodes[k].writes, node.reads) && !meets(nodes[k].writes, node.writes) &&
                  !meets(nodes[k].reads, node.writes);
    node.group = {node.convolution};
    if (last == nodes.size() || !can_wait) {
      last = i;
      continue;
    }
    Node& there = nodes[last];
    there.group.push_back(node.convolution);
    there.reads.insert(there.reads.end(), node.reads.begin(), node.reads.end());
    there.writes.insert(there.writes.end(), node.writes.begin(), node.writes.end());
    nodes.erase(nodes.begin() + std::ptrdiff_t(i));
    --last;
  }
}

}  // namespace

void arrange_for_gpu(std::vector<Node>& nodes) {
  gather_weight_gradients(nodes);
  std::vector<at::Tensor> written;
  for (Node& node : nodes) {
    if (node.kind == Kind::convolution && !is_pass(node, kernels::Pass::kWeightGradient))
      node.weights_early = !meets(written, {node.reads[1]});
    written.insert(written.end(), node.writes.begin(), node.writes.end());
  }
}

}  // namespace millrace::program
