// Operations of a step program before they are prepared.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <vector>

#include "capture/program/kernels/kernels.h"
#include "capture/program/recording.h"

namespace millrace::program {

/// What a node computes, with its operands; where there are two lists, the second is the
/// gradient's.
enum class Kind {
  torch,         ///< the LibTorch operator as called
  convolution,   ///< by pass: {x, w[, bias]} -> {y}, with an activation; {dy, w[, mask]} -> {dx};
                 ///< {dy, x} -> {dw, db}, either may be undefined; on a GPU of a group;
                 ///< {dy, w, x[, mask]} -> {dx, dw, db}
  map,           ///< {left[, right]} -> {made}
  mse,           ///< {prediction, target} -> {loss}; {scale, prediction, target} -> {gradient}
  group_norm,    ///< {x[, weight, bias]} -> {y, mean, rstd}; missing ones are undefined. Frozen, as
                 ///< batch norm in eval mode: {x, weight, bias, mean, variance} -> {y}. Gradient:
                 ///< {dy, x, mean, rstd or variance, weight} -> {dx, dw, db}; each may be undefined
  layer_norm,    ///< as group_norm
  copy,          ///< {source} -> {destination}
  update,        ///< {weights, gradient, rate, finite, state..., memory...} -> {finite, skipped,
                 ///< to, state..., memory...}; finite may be undefined
  add_up,        ///< {part} -> {sum}: over the ranks that share modules
  softmax,       ///< {x} -> {y}; {dy, y} -> {dx}
  pool,          ///< {x} -> {y}; {dy[, x]} -> {dx}
  zero,          ///< {} -> {made}
  channel_sums,  ///< {x} -> {sum over each channel's pixels}
  sample_of_bytes,  ///< {bytes [H,W,C]} -> {sample}; on a GPU
  transfer,         ///< {source} -> {destination}: bytes between pinned memory and a GPU
};

struct Node {
  Kind kind = Kind::torch;
  bool gradient = false;       ///< of mse, a norm, softmax or pool
  const Call* call = nullptr;  ///< it was made from
  std::vector<at::Tensor> reads, writes;
  kernels::Convolution convolution{};
  bool weights_early = false;  ///< convolution: weights are ready before the program runs
  std::vector<kernels::Convolution>
      group;  ///< whose weights' gradients it makes, one after another
  kernels::Map map{};
  float factor = 1;           ///< channel_sums: of each sum
  kernels::GroupNorm norm{};  ///< for a layer norm only eps
  kernels::Matrix matrix{};   ///< layer_norm and softmax
  bool logarithm = false;     ///< softmax
  kernels::Pool pool{};
  bool through_sigmoid = false;  ///< gradient of mse: continue through the sigmoid before it
};

inline bool is_pass(const Node& node, kernels::Pass pass) {
  return node.kind == Kind::convolution && node.convolution.pass == pass;
}
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

/// Dimensions of more than one element, by stride, the largest first.
std::vector<std::int64_t> by_stride(const at::Tensor& tensor);

/// Memory that only the recording holds: its values may be moved or eliminated. Kept until this is
/// gone, so that no other tensor gets the same address.
class OwnMemory {
 public:
  explicit OwnMemory(const std::vector<Call>& calls);
  bool holds(const at::Tensor& tensor) const { return storages_.count(storage(tensor)) > 0; }
  void add(const at::Tensor& tensor) { storages_.emplace(storage(tensor), tensor.storage()); }
  void remove(const at::Tensor& tensor) { storages_.erase(storage(tensor)); }

 private:
  static const c10::StorageImpl* storage(const at::Tensor& tensor) {
    return tensor.storage().unsafeGetStorageImpl();
  }
  std::map<const c10::StorageImpl*, c10::Storage> storages_;
};

/// Lowers calls, which outlive the nodes, to our kernels, or else to LibTorch's operators.
std::vector<Node> translate(const std::vector<Call>& calls, OwnMemory& own, bool on_gpu);

/// Fuses activations, ReLU masks, copies and sums into their producers; removes dead nodes.
void fuse(std::vector<Node>& nodes, OwnMemory& own);

/// Makes one node of a convolution's two gradients where that is faster on a core.
void pair_gradients(std::vector<Node>& nodes);

}  // namespace millrace::program
