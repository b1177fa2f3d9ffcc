// Operations of a step program before they are prepared.
#pragma once

#include <ATen/core/Tensor.h>

#include <any>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capture/program/kernels/kernels.h"
#include "capture/program/values.h"

namespace millrace::program {

class Prepared;
struct Node;
struct ProgramOptions;

/// What a node computes, without its tensors, and how it is prepared; each from operations/.
struct Operation {
  std::string name;  ///< in reports: "group norm 8x16x24 gradient"

  // What fusion must know.
  bool constant = false;  ///< its results are always the same
  bool copy = false;      ///< its result is its operand, in any layout
  bool in_place = false;  ///< its results cannot move
  bool update = false;    ///< of weights: it is never dead; its operand 1 is the gradient
  /// Applies the function to its first result from now on, if it can. `right`: the function's other
  /// operand; undefined: none. Null: it never can.
  std::function<bool(Node& node, kernels::Function function, const at::Tensor& right)> take_over;

  /// For a team of that many threads.
  using OnCores = std::function<std::unique_ptr<Prepared>(const Node& node, int threads)>;
  /// Launches on the current stream without waiting. Compiles kernels that are new.
  using OnGpu = std::function<std::unique_ptr<Prepared>(const Node& node)>;
  OnCores on_cores;
  OnGpu on_gpu;

  std::any attributes;  ///< that others see
};

/// An operation, its operands and its results; any may be undefined where its file says so.
struct Node {
  Operation operation;
  std::vector<at::Tensor> reads, writes;
};

inline bool is_erased(const Node& node) {
  return node.operation.name.empty();
}

/// A map's attributes; null for other operations.
inline const kernels::Map* as_map(const Node& node) {
  return std::any_cast<kernels::Map>(&node.operation.attributes);
}

/// Layout of pictures in kernels: channels last on a core, planes on a GPU.
at::MemoryFormat image_format(c10::Device device);
/// Whether it is one float32 picture, [1,C,H,W], contiguous in that format.
bool is_image(const at::Tensor& tensor);
kernels::Layout layout_of(const at::Tensor& tensor);
/// Whether it is float32 on a core or a GPU and non-overlapping and dense.
bool is_dense(const at::Tensor& tensor);

/// Whether both name the same elements, in layouts that kernels take for the same.
bool same_memory(const at::Tensor& a, const at::Tensor& b);

/// Whether two float32 tensors are dense and have their elements in the same order.
bool lie_alike(const at::Tensor& a, const at::Tensor& b);

/// Dimensions of more than one element, by stride, the largest first.
std::vector<std::int64_t> by_stride(const at::Tensor& tensor);

/// Lowers calls to our kernels, or else to LibTorch's operators.
std::vector<Node> translate(const std::vector<Call>& calls, Values& values, bool on_gpu);

/// Fuses activations, ReLU masks, copies and sums into their producers; removes dead nodes. Links
/// the values with the nodes that are left.
void fuse(std::vector<Node>& nodes, Values& values);

/// For a core or a GPU: which gradients of convolutions are computed together, and which wait for
/// the update. Links the values anew.
void arrange(std::vector<Node>& nodes, Values& values, bool on_gpu, const ProgramOptions& options);

}  // namespace millrace::program
