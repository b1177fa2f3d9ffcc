// Operations of a step program before they are prepared.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "capture/program/kernels/kernels.h"
#include "capture/program/recording.h"

namespace millrace::program {

/// What a node computes, with its operands.
enum class Kind {
  torch,                 ///< the LibTorch operator as called
  convolution,           ///< {x, w[, bias]} -> {y}, with an activation
  data_gradient,         ///< {dy, w[, mask]} -> {dx}
  weight_gradient,       ///< {dy, x} -> {dw, db}; either may be undefined. On a GPU of a group
  map,                   ///< {left[, right]} -> {made}
  mse,                   ///< {prediction, target} -> {loss}
  mse_gradient,          ///< {scale, prediction, target} -> {gradient}
  group_norm,            ///< {x[, weight, bias]} -> {y, mean, rstd}; missing ones are undefined
  group_norm_gradient,   ///< {dy, x, mean, rstd, weight} -> {dx, dw, db}; each may be undefined
  frozen_norm,           ///< {x, weight, bias, mean, variance} -> {y}; batch norm in eval mode
  frozen_norm_gradient,  ///< {dy, x, mean, variance, weight} -> {dx, dw, db}; likewise
  copy,                  ///< {source} -> {destination}
  update,      ///< {weights, gradient, rate, finite, state..., memory...} -> {finite, skipped, to,
               ///< state..., memory...}; finite may be undefined
  add_up,      ///< {part} -> {sum}: over the ranks that share modules
  layer_norm,  ///< {x, weight, bias} -> {y, mean, rstd}; weight and bias may be undefined
  layer_norm_gradient,  ///< {dy, x, mean, rstd, weight} -> {dx, dw, db}; likewise
  softmax,              ///< {x} -> {y}
  softmax_gradient,     ///< {dy, y} -> {dx}
  pool,                 ///< {x} -> {y}
  pool_gradient,        ///< {dy[, x]} -> {dx}
  zero,                 ///< {} -> {made}
  channel_sums,         ///< {x} -> {sum over each channel's pixels}
  sample_of_bytes,      ///< {bytes [H,W,C]} -> {sample}; on a GPU
};

struct Node {
  Kind kind = Kind::torch;
  const Call* call = nullptr;  ///< it was made from
  std::vector<at::Tensor> reads, writes;
  kernels::Convolution convolution{};
  bool weights_early = false;  ///< convolution: weights are ready before the program runs
  std::vector<kernels::Convolution>
      group;  ///< whose weights' gradients it makes, one after another
  kernels::Map map{};
  float factor = 1;           ///< channel_sums: of each sum
  kernels::GroupNorm norm{};  ///< for a layer norm only eps
  kernels::Matrix matrix{};   ///< layer_norm, softmax and their gradients
  bool logarithm = false;     ///< softmax
  kernels::Pool pool{};
  bool through_sigmoid = false;  ///< mse_gradient: continue through the sigmoid before it
};

/// Whether it is the gradient of a norm, softmax, pool or loss.
bool is_gradient(Kind kind);
inline bool is_map(const Node& node, kernels::Function function) {
  return node.kind == Kind::map && node.map.function == function;
}

/// The byte range [begin, end) that a tensor may touch.
struct Range {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};
Range range_of(const at::Tensor& tensor);
/// Whether any of them (undefined allowed) overlaps `range`.
bool touches(const std::vector<at::Tensor>& tensors, const Range& range);
/// The whole storage behind a view.
Range storage_range(const at::Tensor& tensor);

/// Layout of pictures in kernels: channels last on a core, planes on a GPU.
at::MemoryFormat image_format(c10::Device device);
/// Whether it is one float32 picture, [1,C,H,W], contiguous in that format.
bool is_image(const at::Tensor& tensor);
kernels::Layout layout_of(const at::Tensor& tensor);
/// Whether it is float32 on a core or a GPU and non-overlapping and dense.
bool is_dense(const at::Tensor& tensor);

/// Whether two float32 tensors are dense and have their elements in the same order.
bool lie_alike(const at::Tensor& a, const at::Tensor& b);

/// Memory that only the recording holds: its values may be moved or eliminated.
class OwnMemory {
 public:
  explicit OwnMemory(const std::vector<Call>& calls);
  bool holds(const at::Tensor& tensor) const { return storages_.count(storage(tensor)) > 0; }
  void add(const at::Tensor& tensor) { storages_.insert(storage(tensor)); }
  void remove(const at::Tensor& tensor) { storages_.erase(storage(tensor)); }

 private:
  static const c10::StorageImpl* storage(const at::Tensor& tensor) {
    return tensor.storage().unsafeGetStorageImpl();
  }
  std::set<const c10::StorageImpl*> storages_;
};

/// Lowers calls, which outlive the nodes, to our kernels, or else to LibTorch's operators.
std::vector<Node> translate(const std::vector<Call>& calls, OwnMemory& own, bool on_gpu);

/// Fuses activations, ReLU masks, copies and sums into their producers; removes dead nodes.
void fuse(std::vector<Node>& nodes, OwnMemory& own);

}  // namespace millrace::program
