// Convolutions and their gradients on a GPU: which kernel, and its launch.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "capture/program/cuda/arguments.h"
#include "capture/program/cuda/choices.h"
#include "capture/program/cuda/launch_cuda.h"
#include "capture/program/cuda/operations.h"
#include "capture/program/cuda/plans.h"

namespace millrace::program {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kEarly = 1e8;  ///< operations: with fewer, a launch that comes early is faster

constexpr gpu::ConvolutionTile kFmaTiles[] = {
#define TILE(...) {__VA_ARGS__},
    MILLRACE_FMA_TILES(TILE)};
constexpr gpu::ConvolutionTile kTensorTiles[] = {MILLRACE_TENSOR_TILES(TILE)};
constexpr gpu::WeightGradientTile kFmaGradientTiles[] = {MILLRACE_FMA_GRADIENT_TILES(TILE)};
constexpr gpu::WeightGradientTile kTensorGradientTiles[] = {MILLRACE_TENSOR_GRADIENT_TILES(TILE)};
#undef TILE

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

/// A convolution as the kernels see it: the channels of a group, the window as a template argument.
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
  /// Tiles would be empty for the most part.
  bool plain() const { return groups > 1 && std::min(in, out) < 8; }

  /// Channels of a group, of what is read and written.
  int taken() const { return gradient ? out : in; }
  int made() const { return gradient ? in : out; }

  int groups, in, out;
  double flops;
  bool gradient;
  kernels::Layout from, to;  ///< of the forward or the data gradient
  std::string window;
  gpu::Side y{}, x{};
};

/// The kinds of products that a precision allows, and pays for at all.
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

/// About the time of so many multiply-adds in all, by blocks of so many threads: a processor needs
/// some 256 threads, and one with few sums spends its time on loads.
double cost(double sums, gpu::Products products, int blocks, int threads, int sums_of_thread) {
  static constexpr double speeds[] = {1, 2.6, 1.3, 2.8};  // of an H100, in tiles that are full
  const double busy =
      std::min(1.0, double(blocks) * threads / (256.0 * device_properties().multiProcessorCount));
  const double in_registers =
      by_tensor_cores(products) ? 1 : sums_of_thread / (sums_of_thread + 8.);
  return sums / busy / in_registers / speeds[int(products)];
}

bool fits(int floats, int threads) {
  return std::size_t(floats) * sizeof(float) <= device_properties().sharedMemPerBlockOptin &&
         threads <= device_properties().maxThreadsPerBlock;
}

/// A kernel that could do it.
template <class Tile>
struct Candidate {
  gpu::Products products = gpu::Products::fma;
  Tile tile{};
  int cluster = 1;
  double cost = kNever;

  std::string name() const {
    return std::string(name_of(products)) + " " + text_of(tile) +
           (cluster > 1 ? " by " + std::to_string(cluster) : "");
  }
};

/// The few that promise most, of each kind of products the cheapest first.
template <class Tile>
std::vector<Candidate<Tile>> best_of(std::vector<Candidate<Tile>> all) {
  constexpr int kOfEach = 5;
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.cost < b.cost; });
  int kept[4] = {};
  std::erase_if(all, [&](const auto& candidate) {
    return candidate.cost == kNever || kept[int(candidate.products)]++ >= kOfEach;
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

/// The one to take: the first, or, tuned, the one that was fastest when it was timed.
template <class Tile>
Candidate<Tile> choose(const std::vector<Candidate<Tile>>& all, bool tuned, const std::string& task,
                       const std::function<std::string(const Candidate<Tile>&)>& expression,
                       const std::function<double(const Candidate<Tile>&)>& time) {
  if (!tuned) return all.front();
  bool compiled = false;
  return all[gpu::choose(task, names_of(all), [&](std::size_t i) {
    if (!compiled) {
      std::vector<std::string> expressions;
      for (const auto& candidate : all) expressions.push_back(expression(candidate));
      gpu::prepare_kernels(expressions, c10::cuda::current_device());
      compiled = true;
    }
    try {
      return time(all[i]);
    } catch (const c10::OutOfMemoryError&) {
      return kNever;  // what is chosen by shape needs no memory to be tried in
    }
  })];
}

/// \param share of its work in that of the launch's node.
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
  const double sums = double(all) * t.width * t.height * t.block_channels *
                      gpu::divided_up(chunks, choice.cluster) * t.chunk;
  return cost(sums, choice.products, all, t.threads(choice.products), t.channels * t.run);
}

std::vector<ConvolutionChoice> candidates(const kernels::Convolution& c, const Shape& shape) {
  std::vector<ConvolutionChoice> all;
  for (const gpu::Products products : products_of(c, shape)) {
    const auto add = [&](const gpu::ConvolutionTile& tile) {
      for (int cluster = 1; cluster <= 8; cluster *= 2) {
        all.push_back({products, tile, cluster});
        all.back().cost = cost_of(shape, all.back());
      }
    };
    if (gpu::by_tensor_cores(products)) {
      for (const auto& tile : kTensorTiles) add(tile);
    } else {
      for (const auto& tile : kFmaTiles) add(tile);
    }
  }
  return best_of(std::move(all));
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
          Launch("plain_convolution<" + shape_.window + flag() + ">", early(gpu::kThreads, 0));
    } else {
      take(choose<gpu::ConvolutionTile>(
          candidates(c_, shape_), c_.tuned, task_of(c_),
          [&](const Choice& choice) { return expression(choice); },
          [&](const Choice& choice) { return time(choice); }));
    }
  }
  void bind(const Node& node, char*) override {
    const bool third = node.reads.size() > 2;
    arguments_.in = floats(node.reads[0]);
    arguments_.weights = floats(node.reads[1]);
    arguments_.bias = third && !shape_.gradient ? floats(node.reads[2]) : nullptr;
    arguments_.mask = third && shape_.gradient ? floats(node.reads[2]) : nullptr;
    arguments_.out = floats(node.writes[0]);
  }
  void run(int, kernels::Share) override { launch_(blocks_, arguments_); }

 private:
  LaunchShape early(int threads, int floats, int cluster = 1) const {
    return {threads, std::size_t(floats), cluster, info.flops < kEarly};
  }
  std::string flag() const { return shape_.gradient ? ", true" : ", false"; }
  std::string expression(const Choice& choice) const {
    return "convolution<" + shape_.window + flag() + ", " + in_namespace("Products::") +
           name_of(choice.products) + ", " + text_of(choice.tile) + ">";
  }
  void take(const Choice& choice) {
    blocks_ = blocks(shape_, choice.tile) * choice.cluster;
    info.kernel = "gpu " + choice.name();
    launch_ = Launch(expression(choice), early(choice.tile.threads(choice.products),
                                               plan(shape_, choice).floats, choice.cluster));
  }

  double time(const Choice& choice) {
    const at::Tensor in = some_floats(double(shape_.from.floats())),
                     out = some_floats(double(shape_.to.floats())),
                     weights = some_floats(double(shape_.groups) * shape_.in * shape_.out *
                                           shape_.taps());
    take(choice);
    gpu::ConvolutionArguments arguments = arguments_;
    arguments.in = floats(in);
    arguments.weights = floats(weights);
    arguments.out = floats(out);
    C10_CUDA_CHECK(cudaDeviceSynchronize());  // the zeros are there
    return time_launches([&] { launch_(blocks_, arguments); });
  }

  const kernels::Convolution c_;
  const Shape shape_;
  gpu::ConvolutionArguments arguments_;
  Launch launch_;
  int blocks_ = 0;
};

// ---- Weights' gradients.

/// A launch that does several pieces of work, each by blocks of its own.
template <class Arguments>
struct Batch {
  Arguments arguments{};
  std::size_t count = 0;
  int blocks = 0;
};
/// To the last of `batches`, or to a new one if that is full.
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
/// Of a slice.
int blocks(const Shape& shape, const GradientChoice& choice) {
  return gpu::divided_up(shape.in, choice.tile.in) * gpu::divided_up(shape.out, choice.tile.out) *
         plan(shape, choice).row_blocks * shape.groups;
}
int tiles(const kernels::Convolution& c, const gpu::WeightGradientTile& t) {
  return gpu::divided_up(c.output.width, t.width) * gpu::divided_up(c.output.height, t.height);
}
/// \param share of its work in that of all that is done at the same time.
std::vector<GradientChoice> gradient_candidates(const kernels::Convolution& c, const Shape& shape,
                                                double share = 1) {
  std::vector<GradientChoice> all;
  for (const gpu::Products products : products_of(c, shape)) {
    const auto add = [&](const gpu::WeightGradientTile& tile) {
      GradientChoice choice{products, tile};
      const int threads = tile.threads(products);
      if (fits(plan(shape, choice).floats, threads)) {
        choice.cost = cost(double(tiles(c, tile)) * tile.width * tile.height *
                               blocks(shape, choice) * tile.in * tile.out,
                           products, int(tiles(c, tile) * blocks(shape, choice) / share), threads,
                           threads >= 128 ? 64 : 32);
      }
      all.push_back(choice);
    };
    if (gpu::by_tensor_cores(products)) {
      for (const auto& tile : kTensorGradientTiles) add(tile);
    } else {
      for (const auto& tile : kFmaGradientTiles) add(tile);
    }
  }
  return best_of(std::move(all));
}

/// The gradients of several convolutions' weights: those that one kernel does in one launch, and
/// one for all sums of parts.
class GpuWeightGradients final : public Prepared {
  using Choice = GradientChoice;

 public:
  explicit GpuWeightGradients(const Node& node) {
    for (const kernels::Convolution& c : node.group) info.flops += kernels::flops(c);
    add_up_ = Launch("add_up_parts", early(gpu::kThreads, 0));
    info.name = "weight gradients of " + std::to_string(node.group.size()) + " convolutions";
    info.kernel = "gpu";
    for (std::size_t i = 0; i < node.group.size(); ++i) place(node.group[i], i);
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
        work.x = floats(node.reads[2 * member.index + 1]);
        work.dy = floats(node.reads[2 * member.index]);
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
  };
  struct Group {
    std::string expression, name;
    std::size_t together;  ///< at most, in a launch
    Launch launch;
    std::vector<Member> members;
    std::vector<Batch<gpu::WeightGradientArguments>> batches;
  };

  LaunchShape early(int threads, int floats) const {
    return {threads, std::size_t(floats), 1, info.flops < 3 * kEarly};
  }
  static int weights_of(const gpu::WeightGradient& g) {
    return g.groups * g.out_channels * g.in_channels * g.taps;
  }
  static std::string expression(const Shape& shape, const Choice& choice) {
    return "weight_gradients<" + shape.window + ", " + in_namespace("Products::") +
           name_of(choice.products) + ", " + text_of(choice.tile) + ">";
  }

  /// Two blocks a processor, by the convolution's part of the work.
  int slices(const kernels::Convolution& c, const Shape& shape, const Choice& choice) const {
    const double wanted = 2.0 * device_properties().multiProcessorCount * shape.flops / info.flops;
    return std::clamp(int(std::ceil(wanted / blocks(shape, choice))), 1, tiles(c, choice.tile));
  }

  void place(const kernels::Convolution& c, std::size_t index) {
    const Shape shape(c);
    gpu::WeightGradient work{.groups = shape.groups,
                             .in_channels = shape.in,
                             .in_height = c.input.height,
                             .in_width = c.input.width,
                             .out_channels = shape.out,
                             .out_height = c.output.height,
                             .out_width = c.output.width,
                             .taps = shape.taps(),
                             .slices = 1,
                             .blocks = shape.groups * shape.out * shape.in};
    if (shape.plain()) {
      add(index, work, "plain_weight_gradient<" + shape.window + ">", "plain", 1,
          early(gpu::kThreads, 2 * gpu::kThreads));
      return;
    }
    const double share = shape.flops / info.flops;
    const auto with = [&](const Choice& choice) {
      gpu::WeightGradient by = work;
      by.slices = slices(c, shape, choice);
      by.blocks = by.slices * blocks(shape, choice);
      return by;
    };
    const auto launched = [&](const Choice& choice) {
      return early(choice.tile.threads(choice.products), plan(shape, choice).floats);
    };
    const Choice choice = choose<gpu::WeightGradientTile>(
        gradient_candidates(c, shape, share), c.tuned, task_of(c, share),
        [&](const Choice& tried) { return expression(shape, tried); },
        [&](const Choice& tried) {
          const at::Tensor x = some_floats(double(c.input.floats())),
                           dy = some_floats(double(c.output.floats()));
          gpu::WeightGradient by = with(tried);
          const at::Tensor parts = some_floats(double(by.slices) * weights_of(by));
          by.x = floats(x), by.dy = floats(dy), by.parts = floats(parts);
          const Launch launch(expression(shape, tried), launched(tried));
          C10_CUDA_CHECK(cudaDeviceSynchronize());  // the zeros are there
          return time_launches(
              [&] { launch(by.blocks, gpu::WeightGradientArguments{.all = {by}}); });
        });
    add(index, with(choice), expression(shape, choice), choice.name(), gpu::kMostWeightGradients,
        launched(choice));
  }

  void add(std::size_t index, const gpu::WeightGradient& work, const std::string& expression,
           const std::string& name, std::size_t together, const LaunchShape& how) {
    scratch_floats_ +=
        std::size_t(work.slices) * (weights_of(work) + work.groups * work.out_channels);
    auto group = std::find_if(groups_.begin(), groups_.end(),
                              [&](const Group& g) { return g.expression == expression; });
    if (group == groups_.end())
      group = groups_.insert(group, {expression, name, together, Launch(expression, how), {}, {}});
    group->members.push_back({index, work});
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
  return std::make_unique<GpuConvolution>(node);
}

std::unique_ptr<Prepared> gpu_weight_gradients(const Node& node) {
  return std::make_unique<GpuWeightGradients>(node);
}

void gather_weight_gradients(std::vector<Node>& nodes) {
  std::size_t last = nodes.size();
  for (std::size_t i = nodes.size(); i-- > 0;) {
    if (nodes[i].kind != Kind::weight_gradient) continue;
    const auto meets = [](const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
      return std::any_of(a.begin(), a.end(), [&](const at::Tensor& t) {
        return t.defined() && std::any_of(b.begin(), b.end(), [&](const at::Tensor& u) {
                 return u.defined() && range_of(t).overlaps(range_of(u));
               });
      });
    };
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

}  // namespace millrace::program
