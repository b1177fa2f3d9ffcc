#include <ATen/ATen.h>

#include "capture/program/cuda/choices_cuda.h"

namespace millrace::program {
namespace {

/// With fewer operations, weight gradients are faster in one launch, measured on an H100.
constexpr double kTogether = 1e9;

constexpr gpu::WeightGradientTile kFmaTiles[] = {
#define TILE(...) {__VA_ARGS__},
    MILLRACE_FMA_GRADIENT_TILES(TILE)};
constexpr gpu::WeightGradientTile kTensorTiles[] = {MILLRACE_TENSOR_GRADIENT_TILES(TILE)};
#undef TILE

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

using Sums = std::vector<Batch<gpu::PartsArguments>>;
void add_sum(Sums& sums, const gpu::Parts& of) {
  gpu::Parts parts = of;
  parts.blocks = gpu::divided_up(parts.count, gpu::kThreads);
  add_work(sums, parts, 2 * gpu::kMostWeightGradients);
}

using WeightGradientChoice = Candidate<gpu::WeightGradientTile>;

gpu::WeightGradientPlan plan(const ConvolutionShape& shape, const WeightGradientChoice& choice) {
  return gpu::WeightGradientPlan(shape.y, shape.x, choice.products, choice.tile);
}
/// Per slice.
int blocks(const ConvolutionShape& shape, const WeightGradientChoice& choice) {
  return gpu::divided_up(shape.in, choice.tile.in) * gpu::divided_up(shape.out, choice.tile.out) *
         plan(shape, choice).row_blocks * shape.groups;
}
int tiles(const kernels::Convolution& c, const gpu::WeightGradientTile& t) {
  return gpu::divided_up(c.output.width, t.width) * gpu::divided_up(c.output.height, t.height);
}
/// \param share of this work in all concurrent work.
std::vector<WeightGradientChoice> candidates(const kernels::Convolution& c,
                                             const ConvolutionShape& shape, double share = 1) {
  if (shape.plain()) return {};
  std::vector<WeightGradientChoice> all;
  for (const gpu::Products products : products_of(c, shape)) {
    for (const auto& tile : of_kind(products, kTensorTiles, kFmaTiles)) {
      WeightGradientChoice choice{products, tile};
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
  using Choice = WeightGradientChoice;

 public:
  explicit GpuWeightGradients(const std::vector<kernels::Convolution>& all) : all_(all) {
    for (const kernels::Convolution& c : all_) {
      info.flops += kernels::flops(c);
      plain_.push_back(candidates(c, ConvolutionShape(c)).empty());
    }
    add_up_ = Launch("add_up_parts", {gpu::kThreads, 0, 1, true});
    info.name = "weight gradients of " + std::to_string(all_.size()) + " convolutions";
    info.kernel = "gpu";
    for (std::size_t i = 0; i < all_.size(); ++i) choose_for(i);
    for (Group& group : groups_) slice(group);
    for (const Group& group : groups_)
      info.kernel += (&group == &groups_[0] ? " " : "; ") + group.name;
  }
  std::size_t scratch_bytes() const override { return scratch_floats_ * sizeof(float); }
  void bind(const Node& node, char* scratch) override {
    auto* memory = reinterpret_cast<float*>(scratch);
    const auto take = [&](int slices, int floats) {
      return std::exchange(memory, memory + std::size_t(slices) * floats);
    };
    sums_.clear();
    for (Group& group : groups_) {
      group.batches.clear();
      for (const Member& member : group.members) {
        const kernels::Convolution& c = all_[member.index];
        const at::Tensor &dw = node.writes[2 * member.index],
                         &db = node.writes[2 * member.index + 1];
        gpu::WeightGradient work = member.work;
        const int weights = weights_of(work), outs = work.groups * work.to.channels;
        const bool direct = writes_sums(c, work);
        point(work, floats(node.reads[2 * member.index + 1]), floats(node.reads[2 * member.index]));
        work.parts = direct ? floats(dw) : take(work.slices, weights);
        if (db.defined()) work.bias_parts = direct ? floats(db) : take(work.slices, outs);
        add_work(group.batches, work, group.together);
        if (direct) continue;
        add_sum(sums_, {work.parts, floats(dw), work.slices, weights, c.accumulate});
        if (db.defined())
          add_sum(sums_, {work.bias_parts, floats(db), work.slices, outs, c.accumulate});
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

  LaunchShape launched(const ConvolutionShape& shape, const Choice& choice) const {
    return {choice.tile.threads(choice.products), std::size_t(plan(shape, choice).floats), 1,
            info.flops < 3 * kEarly};
  }
  /// With a single slice there is nothing to add up.
  static bool writes_sums(const kernels::Convolution& c, const gpu::WeightGradient& g) {
    return g.slices == 1 && !c.accumulate;
  }
  static int weights_of(const gpu::WeightGradient& g) {
    return g.groups * g.to.channels * g.from.channels * g.taps;
  }
  static std::string expression(const ConvolutionShape& shape, const Choice& choice) {
    return "weight_gradients<" + shape.window + ", " + choice.arguments();
  }
  static gpu::WeightGradient work_of(const ConvolutionShape& shape) {
    return {.groups = shape.groups,
            .from = shape.from,
            .to = shape.to,
            .taps = shape.taps(),
            .slices = 1,
            .blocks = shape.groups * shape.out * shape.in};
  }
  static void point(gpu::WeightGradient& work, const float* x, const float* dy) {
    work.x = x;
    work.dy = dy;
    work.fours = work.from.width % 4 == 0 && holds_fours(x);
    work.dy_fours = work.to.width % 4 == 0 && holds_fours(dy);
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
  bool meets(const ConvolutionShape& a, std::size_t other) const {
    constexpr int kFew = 8;
    const ConvolutionShape b(all_[other]);
    return !plain_[other] && a.window == b.window &&
           (info.flops < kTogether ||
            ((a.in < kFew) == (b.in < kFew) && (a.out < kFew) == (b.out < kFew)));
  }

  void choose_for(std::size_t index) {
    const ConvolutionShape own(all_[index]);
    if (plain_[index]) {
      Group& group = group_of("plain_weight_gradient<" + own.window + ">", "plain", 1,
                              {gpu::kThreads, 2 * gpu::kThreads, 1, true});
      group.members.push_back({index, work_of(own)});
      return;
    }
    std::vector<std::size_t> together;
    std::size_t largest = index;  // decides for a whole small launch
    for (std::size_t i = 0; i < all_.size(); ++i) {
      if (!meets(own, i)) continue;
      together.push_back(i);
      if (info.flops < kTogether && kernels::flops(all_[i]) > kernels::flops(all_[largest]))
        largest = i;
    }
    const Choice choice = choose_kernel(together, largest);
    Group& group = group_of(expression(own, choice), choice.name(), gpu::kMostWeightGradients,
                            launched(own, choice));
    group.members.push_back(member_of(index, choice));
  }

  Member member_of(std::size_t index, const Choice& choice) const {
    const ConvolutionShape shape(all_[index]);
    return {index, work_of(shape), blocks(shape, choice), tiles(all_[index], choice.tile)};
  }

  /// For the launch of `together`, named after the largest of them.
  Choice choose_kernel(const std::vector<std::size_t>& together, std::size_t largest) const {
    const kernels::Convolution& c = all_[largest];
    const ConvolutionShape shape(c);
    double flops = 0;
    for (const std::size_t i : together) flops += kernels::flops(all_[i]);
    const double share = shape.flops / flops;
    return choose<gpu::WeightGradientTile>(
        candidates(c, shape, share), c.tuned, task_of(c, share),
        [&](const Choice& tried) { return expression(shape, tried); },
        [&](const Choice& tried) {
          std::vector<Member> members;
          for (const std::size_t i : together) members.push_back(member_of(i, tried));
          slice(members, tried.tile.threads(tried.products));
          std::vector<at::Tensor> images, parts;
          std::vector<Batch<gpu::WeightGradientArguments>> batches;
          Sums sums;
          for (Member& member : members) {
            gpu::WeightGradient& work = member.work;
            const int weights = weights_of(work);
            parts.push_back(some_floats(double(work.slices + 1) * weights));
            const kernels::Convolution& of = all_[member.index];
            images.push_back(some_floats(double(of.input.floats())));
            images.push_back(some_floats(double(of.output.floats())));
            point(work, floats(images.end()[-2]), floats(images.back()));
            work.parts = floats(parts.back()) + weights;
            add_work(batches, work, gpu::kMostWeightGradients);
            if (!writes_sums(all_[member.index], work))
              add_sum(sums, {work.parts, floats(parts.back()), work.slices, weights});
          }
          const Launch launch(expression(shape, tried), launched(shape, tried));
          MILLRACE_CHECK_CUDA(cudaDeviceSynchronize());  // zeros are written
          return time_launches([&] {
            for (const auto& batch : batches) launch(batch.blocks, batch.arguments);
            for (const auto& batch : sums) add_up_(batch.blocks, batch.arguments);
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

  void slice(Group& group) {
    if (group.together > 1) slice(group.members, group.threads);
    for (const Member& member : group.members) {
      const gpu::WeightGradient& work = member.work;
      if (writes_sums(all_[member.index], work)) continue;
      scratch_floats_ +=
          std::size_t(work.slices) * (weights_of(work) + work.groups * work.to.channels);
    }
  }

  const std::vector<kernels::Convolution> all_;
  std::vector<bool> plain_;  ///< takes no tiles; like all_
  Launch add_up_;
  std::vector<Group> groups_;
  Sums sums_;
  std::size_t scratch_floats_ = 0;
};

}  // namespace

std::vector<std::string> weight_gradient_kernels(const kernels::Convolution& c) {
  return names_of(candidates(c, ConvolutionShape(c)));
}

std::unique_ptr<Prepared> gpu_weight_gradients(const std::vector<kernels::Convolution>& group) {
  return std::make_unique<GpuWeightGradients>(group);
}

}  // namespace millrace::program
