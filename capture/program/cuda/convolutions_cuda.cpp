// Convolutions and their gradients on a GPU.
#include <algorithm>
#include <cmath>
#include <limits>

#include "capture/program/cuda/arguments.h"
#include "capture/program/cuda/launch_cuda.h"
#include "capture/program/cuda/operations.h"
#include "capture/program/cuda/plans.h"

namespace millrace::program {
namespace {

// ---- Which tile. Of shape and device alone, so that it is the same at each start.

constexpr gpu::ConvolutionTile kConvolutionTiles[] = {
#define TILE(...) {__VA_ARGS__},
    MILLRACE_CONVOLUTION_TILES(TILE)};
constexpr gpu::WeightGradientTile kWeightGradientTiles[] = {MILLRACE_WEIGHT_GRADIENT_TILES(TILE)};
#undef TILE

int tiles_of(int width, int height, int of_width, int of_height) {
  return gpu::divided_up(of_width, width) * gpu::divided_up(of_height, height);
}
constexpr double kNever = std::numeric_limits<double>::infinity();
bool fits(int floats) {
  return std::size_t(floats) * sizeof(float) <= device_properties().sharedMemPerBlockOptin;
}
/// About the time of so many multiply-adds in all, by blocks of so many threads: a processor needs
/// some 256 threads, and one with few sums spends its time on loads.
double cost(double products, int blocks, int threads, int sums_of_thread) {
  const double busy =
      std::min(1.0, double(blocks) * threads / (256.0 * device_properties().multiProcessorCount));
  return products / busy / (sums_of_thread / (sums_of_thread + 8.0));
}

/// The tile that takes the least `time(tile)`.
template <class Tile, std::size_t kCount, class Time>
const Tile& quickest(const Tile (&tiles)[kCount], int kernel, const Time& time) {
  const Tile* best = nullptr;
  double least = kNever;
  for (const Tile& tile : tiles) {
    const double takes = time(tile);
    if (takes < least) best = &tile, least = takes;
  }
  TORCH_CHECK(best, "no tile for a kernel of ", kernel);
  return *best;
}

/// A launch that does several pieces of work, each by blocks of its own.
template <class Arguments>
struct Batch {
  Arguments arguments{};
  std::size_t count = 0;
  int blocks = 0;
};
/// To the last of `batches`, or to a new one if that is full.
template <class Arguments, class Work>
void add_work(std::vector<Batch<Arguments>>& batches, const Work& work) {
  if (batches.empty() || batches.back().count == std::size(batches.back().arguments.all))
    batches.emplace_back();
  Batch<Arguments>& batch = batches.back();
  batch.arguments.all[batch.count++] = work;
  batch.blocks += work.blocks;
}

/// Forward or data gradient.
class GpuConvolution final : public Prepared {
 public:
  explicit GpuConvolution(const Node& node)
      : gradient_(node.kind == Kind::data_gradient),
        from_(gradient_ ? node.convolution.output : node.convolution.input),
        to_(gradient_ ? node.convolution.input : node.convolution.output) {
    const kernels::Convolution& c = node.convolution;
    const gpu::ConvolutionTile& tile = choose(c);
    static constexpr const char* activations[] = {"none", "relu", "sigmoid"};
    launch_ =
        Launch("convolution<" + numbers(c.kernel, c.stride) + (gradient_ ? ", true" : ", false") +
                   ", millrace::gpu::Activation::" + activations[int(c.activation)] + ", " +
                   numbers(tile.width, tile.height, tile.pixels, tile.block_channels, tile.channels,
                           tile.chunk, tile.parts) +
                   ">",
               tile.threads(),
               std::size_t(gpu::ConvolutionPlan(c.kernel, c.stride, gradient_, tile).floats));
    blocks_ = blocks(tile);
    info.name = describe(c);
    info.kernel = "gpu " + numbers(tile.width, tile.height, tile.block_channels);
    info.flops = kernels::flops(c);
  }
  void bind(const Node& node, char*) override {
    const bool third = node.reads.size() > 2;
    arguments_ = {.in = floats(node.reads[0]),
                  .weights = floats(node.reads[1]),
                  .bias = third && !gradient_ ? floats(node.reads[2]) : nullptr,
                  .mask = third && gradient_ ? floats(node.reads[2]) : nullptr,
                  .out = floats(node.writes[0]),
                  .in_channels = from_.channels,
                  .in_height = from_.height,
                  .in_width = from_.width,
                  .out_channels = to_.channels,
                  .out_height = to_.height,
                  .out_width = to_.width,
                  .kernel = node.convolution.kernel};
  }
  void run(int, kernels::Share) override { launch_(blocks_, arguments_); }

 private:
  int blocks(const gpu::ConvolutionTile& tile) const {
    return tiles_of(tile.width, tile.height, to_.width, to_.height) *
           gpu::divided_up(to_.channels, tile.block_channels);
  }
  const gpu::ConvolutionTile& choose(const kernels::Convolution& c) const {
    return quickest(kConvolutionTiles, c.kernel, [&](const gpu::ConvolutionTile& tile) {
      if (!fits(gpu::ConvolutionPlan(c.kernel, c.stride, gradient_, tile).floats)) return kNever;
      const double products = double(blocks(tile)) * tile.width * tile.height *
                              tile.block_channels * gpu::rounded_up(from_.channels, tile.chunk);
      return cost(products, blocks(tile), tile.threads(), tile.channels * tile.pixels);
    });
  }

  const bool gradient_;
  const kernels::Layout from_, to_;
  Launch launch_;
  int blocks_ = 0;
  gpu::ConvolutionArguments arguments_{};
};

/// The gradients of several convolutions' weights: those of one kernel size, stride and tile in one
/// launch, and one for all sums of parts.
class GpuWeightGradients final : public Prepared {
 public:
  explicit GpuWeightGradients(const Node& node) : add_up_("add_up_parts", gpu::kThreads) {
    info.name = "weight gradients of " + std::to_string(node.group.size()) + " convolutions";
    info.kernel = "gpu";
    for (const kernels::Convolution& c : node.group) info.flops += kernels::flops(c);
    for (std::size_t i = 0; i < node.group.size(); ++i) place(node, i);
    for (Group& group : groups_) {
      const gpu::WeightGradientTile& t = *group.tile;
      group.launch = Launch(
          "weight_gradients<" +
              numbers(group.kernel, group.stride, t.width, t.height, t.in, t.out, t.threads) + ">",
          t.threads, std::size_t(gpu::WeightGradientPlan(group.kernel, group.stride, t).floats));
    }
  }
  std::size_t scratch_bytes() const override { return scratch_floats_ * sizeof(float); }
  void bind(const Node& node, char* scratch) override {
    auto* memory = reinterpret_cast<float*>(scratch);
    sums_.clear();
    for (Group& group : groups_) {
      group.batches.clear();
      for (const Member& member : group.members) {
        const kernels::Convolution& c = node.group[member.index];
        const kernels::Layout &x = c.input, &dy = c.output;
        const at::Tensor &dw = node.writes[2 * member.index],
                         &db = node.writes[2 * member.index + 1];
        const int weights = dy.channels * x.channels * c.kernel * c.kernel;
        float* const bias_parts =
            db.defined() ? memory + std::size_t(member.slices) * weights : nullptr;
        add_work(group.batches, gpu::WeightGradient{.x = floats(node.reads[2 * member.index + 1]),
                                                    .dy = floats(node.reads[2 * member.index]),
                                                    .parts = memory,
                                                    .bias_parts = bias_parts,
                                                    .in_channels = x.channels,
                                                    .in_height = x.height,
                                                    .in_width = x.width,
                                                    .out_channels = dy.channels,
                                                    .out_height = dy.height,
                                                    .out_width = dy.width,
                                                    .kernel = c.kernel,
                                                    .slices = member.slices,
                                                    .blocks = member.slices * member.blocks});
        add_sum(memory, floats(dw), member.slices, weights, c.accumulate);
        memory += std::size_t(member.slices) * weights;
        if (!bias_parts) continue;
        add_sum(bias_parts, floats(db), member.slices, dy.channels, c.accumulate);
        memory += std::size_t(member.slices) * dy.channels;
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
    std::size_t index;   ///< in the node
    int slices, blocks;  ///< blocks of a slice
  };
  struct Group {
    int kernel, stride;
    const gpu::WeightGradientTile* tile;
    std::vector<Member> members;
    Launch launch;
    std::vector<Batch<gpu::WeightGradientArguments>> batches;
  };

  static int blocks(const kernels::Convolution& c, const gpu::WeightGradientTile& t) {
    return gpu::divided_up(c.input.channels, t.in) * gpu::divided_up(c.output.channels, t.out) *
           gpu::WeightGradientPlan(c.kernel, c.stride, t).row_blocks;
  }

  /// Of all the convolutions' work, which is info.flops.
  void place(const Node& node, std::size_t index) {
    const kernels::Convolution& c = node.group[index];
    const auto tiles_by = [&](const gpu::WeightGradientTile& t) {
      return tiles_of(t.width, t.height, c.output.width, c.output.height);
    };
    const gpu::WeightGradientTile& tile =
        quickest(kWeightGradientTiles, c.kernel, [&](const gpu::WeightGradientTile& t) {
          if (!fits(gpu::WeightGradientPlan(c.kernel, c.stride, t).floats)) return kNever;
          return cost(double(tiles_by(t)) * t.width * t.height * blocks(c, t) * t.in * t.out,
                      tiles_by(t) * blocks(c, t), t.threads, t.threads >= 128 ? 64 : 32);
        });
    // Two blocks a processor, by each convolution's part of the work.
    const double wanted =
        2.0 * device_properties().multiProcessorCount * kernels::flops(c) / info.flops;
    const Member member{
        .index = index,
        .slices = std::clamp(int(std::ceil(wanted / blocks(c, tile))), 1, tiles_by(tile)),
        .blocks = blocks(c, tile)};
    const std::size_t weights =
        std::size_t(c.input.channels) * c.output.channels * c.kernel * c.kernel;
    scratch_floats_ += member.slices * (weights + c.output.channels);
    for (Group& group : groups_) {
      if (group.kernel == c.kernel && group.stride == c.stride && group.tile == &tile)
        return group.members.push_back(member);
    }
    groups_.push_back({.kernel = c.kernel, .stride = c.stride, .tile = &tile, .members = {member}});
  }

  void add_sum(const float* parts, float* sum, int slices, int count, bool accumulate) {
    add_work(sums_, gpu::Parts{parts, sum, slices, count, accumulate,
                               gpu::divided_up(count, gpu::kThreads)});
  }

  const Launch add_up_;
  std::vector<Group> groups_;
  std::vector<Batch<gpu::PartsArguments>> sums_;
  std::size_t scratch_floats_ = 0;
};

}  // namespace

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
