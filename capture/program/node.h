// A step program's operations before they are prepared.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "capture/program/kernels/kernels.h"
#include "capture/program/recording.h"

namespace millrace::program {

/// What a node does, and what its operands are.
enum class Kind {
  torch,                 ///< the LibTorch operator that was called
  convolution,           ///< {x, w[, bias]} -> {y}, with an activation
  data_gradient,         ///< {dy, w[, mask]} -> {dx}
  weight_gradient,       ///< {dy, x} -> {dw, db}; either may be undefined. On a GPU of a group
  map,                   ///< {left[, right]} -> {made}
  mse,                   ///< {prediction, target} -> {loss}
  mse_gradient,          ///< {scale, prediction, target} -> {gradient}
  group_norm,            ///< {x[, weight, bias]} -> {y, mean, rstd}; what is not there is undefined
  group_norm_gradient,   ///< {dy, x, mean, rstd, weight} -> {dx, dw, db}; each may be undefined
  frozen_norm,           ///< {x, weight, bias, mean, variance} -> {y}; batch norm in evaluation
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

/// One operation on memory at fixed addresses.
struct Node {
  Kind kind = Kind::torch;
  const Call* call = nullptr;  ///< that it was made of
  std::vector<at::Tensor> reads, writes;
  kernels::Convolution convolution{};
  bool weights_early = false;  ///< a convolution's are there before the program runs
  std::vector<kernels::Convolution>
      group;  ///< whose weights' gradients it makes, one after another
  kernels::Map map{};
  float factor = 1;           ///< channel_sums: of each sum
  kernels::GroupNorm norm{};  ///< of a layer norm: eps alone
  kernels::Matrix matrix{};   ///< layer_norm, softmax and their gradients
  bool logarithm = false;     ///< softmax
  kernels::Pool pool{};
  bool through_sigmoid = false;  ///< mse_gradient: on through the sigmoid before it
};

/// Of a norm, softmax, pool or loss.
bool is_gradient(Kind kind);
inline bool is_map(const Node& node, kernels::Function function) {
  return node.kind == Kind::map && node.map.function == function;
}

/// Bytes [begin, end) that a tensor may touch.
struct Range {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};
Range range_of(const at::Tensor& tensor);
/// Whether any of them, which may be undefined, has memory there.
bool touches(const std::vector<at::Tensor>& tensors, const Range& range);
/// All of the memory that it is a view of.
Range storage_range(const at::Tensor& tensor);

/// How kernels have the pictures of a device: a core's with channels side by side, a GPU's in
/// planes.
at::MemoryFormat image_format(c10::Device device);
/// Whether it is one float32 picture, [1,C,H,W], in that format without gaps, and its layout.
bool is_image(const at::Tensor& tensor);
kernels::Layout layout_of(const at::Tensor& tensor);
/// Whether it is float32 on a core or a GPU and its elements fill their range in some order.
bool is_dense(const at::Tensor& tensor);

/// Whether two float32 tensors' elements lie in one order, without gaps.
bool lie_alike(const at::Tensor& a, const at::Tensor& b);

/// Memory that the recording alone holds: its values may be moved or eliminated.
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

/// Lowers calls to nodes: our kernels where they exist, LibTorch's operators elsewhere, nothing for
/// views. The calls outlive the nodes.
std::vector<Node> translate(const std::vector<Call>& calls, OwnMemory& own, bool on_gpu);

/// Fuses activations into convolutions, ReLU masks into gradients, and copies and sums into their
/// producers, then removes dead nodes.
void fuse(std::vector<Node>& nodes, OwnMemory& own);

}  // namespace millrace::program
