// The choice among the GPU kernels of a convolution: by shape, or by timing the most promising.
#pragma once

#include <ATen/Tensor.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capture/check_cuda.h"
#include "capture/program/cuda/cache.h"
#include "capture/program/cuda/launch_cuda.h"
#include "capture/program/operations/convolution.h"

namespace millrace::program {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// With fewer operations, early launches are faster, measured on an H100.
constexpr double kEarly = 1.5e8;
/// Instructions per copy to shared memory: of four pixels; of a weight.
constexpr double kCopy = 18, kWeightCopy = 10;

/// A convolution as kernels see it: channels per group, the window as a template argument.
struct ConvolutionShape {
  explicit ConvolutionShape(const kernels::Convolution& c);
  int taps() const { return y.taps * x.taps; }
  /// Tiles would be mostly empty. Then, or if none fits, there are no candidates.
  bool plain() const { return groups > 1 && std::min(in, out) < 8; }

  int groups, in, out;
  double flops;
  bool gradient;
  kernels::Layout from, to;  ///< of a group in the forward or the data gradient
  std::string window;
  gpu::Side y{}, x{};
};

/// Kinds of products that the precision allows and that pay off.
std::vector<gpu::Products> products_of(const kernels::Convolution& c,
                                       const ConvolutionShape& shape);

/// Relative time of `sums` multiply-adds and `copies` copy instructions in total: an SM needs some
/// 256 threads, and a thread with few sums is bound by loads.
double cost(double sums, double copies, gpu::Products products, int blocks, int threads,
            int sums_of_thread);
/// Whether the device has so much shared memory and so many threads per block.
bool fits(int floats, int threads);

const char* name_of(gpu::Products products);
std::string in_namespace(const std::string& what);
std::string text_of(const gpu::ConvolutionTile& t);
std::string text_of(const gpu::WeightGradientTile& t);

template <class Tile, std::size_t kTensor, std::size_t kFma>
std::span<const Tile> of_kind(gpu::Products products, const Tile (&tensor)[kTensor],
                              const Tile (&fma)[kFma]) {
  if (by_tensor_cores(products)) return tensor;
  return fma;
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
  /// The last template arguments of its kernel.
  std::string arguments() const {
    return in_namespace("Products::") + name_of(products) + ", " + text_of(tile) + ">";
  }
};

/// The most promising, the cheapest first. In 8,275 timings on an H100, the fastest of them was on
/// average 0.1 % slower than the fastest of all. Empty if none fits.
template <class Tile>
std::vector<Candidate<Tile>> best_of(std::vector<Candidate<Tile>> all) {
  constexpr double kTimesTheCheapest = 2.2;
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.cost < b.cost; });
  if (all.front().cost == kNever) return {};
  const double most = kTimesTheCheapest * all.front().cost;
  std::erase_if(all, [&](const auto& candidate) { return candidate.cost > most; });
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
      return kNever;
    }
  })];
}

/// \param share of this work in its launch.
std::string task_of(const kernels::Convolution& c, double share = 1);

/// Zeros on the current device.
at::Tensor some_floats(double count);

std::unique_ptr<Prepared> gpu_weight_gradients(const std::vector<kernels::Convolution>& group);
/// KernelChoice::names of a weight gradient.
std::vector<std::string> weight_gradient_kernels(const kernels::Convolution& c);

}  // namespace millrace::program
