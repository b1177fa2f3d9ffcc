// Operations of a step program before they are prepared.
#pragma once

#include <ATen/core/Tensor.h>

#include <any>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "capture/program/kernels/kernels.h"
#include "capture/program/recording.h"

namespace millrace::program {

class Prepared;
struct Node;

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

/// A map's attributes; null for other operations.
inline const kernels::Map* as_map(const Node& node) {
  return std::any_cast<kernels::Map>(&node.operation.attributes);
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

/// Whether both name the same elements, in layouts that kernels take for the same.
bool same_memory(const at::Tensor& a, const at::Tensor& b);

/// Whether two float32 tensors are dense and have their elements in the same order.
bool lie_alike(const at::Tensor& a, const at::Tensor& b);

/// Dimensions of more than one element, by stride, the largest first.
std::vector<std::int64_t> by_stride(const at::Tensor& tensor);

/// Memory that only the recording holds: its values may be moved or eliminated. Held until this is
/// destroyed, so that no other tensor gets the same address.
class OwnMemory {
 public:
  explicit OwnMemory(const std::vector<Call>& calls);
  bool holds(const at::Tensor& tensor) const { return storages_.count(storage(tensor)) > 0; }
  /// Adds what `calls` make, none of which anybody else holds.
  void add_made(const std::vector<Call>& calls);
  void add(const at::Tensor& tensor) { storages_.emplace(storage(tensor), tensor.storage()); }
  /// Tensors that others hold, too, each with the arena that it moves to.
  const std::vector<std::pair<at::Tensor, capture::Arena*>>& kept() const { return kept_; }
  void remove(const at::Tensor& tensor) { storages_.erase(storage(tensor)); }

 private:
  static const c10::StorageImpl* storage(const at::Tensor& tensor) {
    return tensor.storage().unsafeGetStorageImpl();
  }
  std::map<const c10::StorageImpl*, c10::Storage> storages_;
  std::vector<std::pair<at::Tensor, capture::Arena*>> kept_;
};

/// Lowers calls to our kernels, or else to LibTorch's operators.
std::vector<Node> translate(const std::vector<Call>& calls, OwnMemory& own, bool on_gpu);

/// Fuses activations, ReLU masks, copies and sums into their producers; removes dead nodes.
void fuse(std::vector<Node>& nodes, OwnMemory& own);

}  // namespace millrace::program
