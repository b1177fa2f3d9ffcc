// Lowering LibTorch's operators to nodes: what the rules in operations/ are written with.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capture/program/cuda/arguments.h"
#include "capture/program/cuda/plans.h"
#include "capture/program/operation.h"
#include "capture/program/operation_files.h"  // CMake writes it: FILE(name) for each of operations/

namespace millrace::program {

/// A program's nodes so far. Kernels read and write images. A picture in another layout gets an
/// image beside it; copies keep the picture current, and fuse() removes those nobody reads.
class Lowering {
 public:
  Lowering(std::span<const Call> calls, Values& values, bool on_gpu)
      : calls_(calls), values_(values), on_gpu_(on_gpu) {}

  std::vector<Node> run();

  bool on_gpu() const { return on_gpu_; }
  std::span<const Call> calls() const { return calls_; }

  /// Adds a node. \returns true, as a successful rule does.
  bool add(Operation operation, std::vector<at::Tensor> reads, std::vector<at::Tensor> writes);
  /// Adds a node whose first result is the image of `made`; undefined: not wanted.
  bool add_image(const at::Tensor& made, Operation operation, std::vector<at::Tensor> reads,
                 std::vector<at::Tensor> more = {});
  bool copy(const at::Tensor& from, const at::Tensor& to);
  /// Adds the operators that `body` calls. Returns true.
  bool compose(const std::function<void()>& body);

  /// Memory that the program owns, of the size of `like`; without a format, with its strides.
  at::Tensor own(const at::Tensor& like, std::optional<at::MemoryFormat> format = {});

  at::Tensor read(const at::Tensor& tensor);
  bool has_image(const at::Tensor& tensor) const {
    return images_.count(tensor.const_data_ptr()) > 0;
  }
  /// An image for `tensor`'s new contents; call written() afterwards.
  at::Tensor image_for(const at::Tensor& tensor);
  bool written(const at::Tensor& tensor, const at::Tensor& image);
  /// The tensor itself or a contiguous copy.
  at::Tensor contiguous(const at::Tensor& tensor);

 private:
  void lower(std::span<const Call> calls);
  bool translated(const Call& call, const std::string& name);
  /// Adds the LibTorch operator itself.
  void left(const Call& call);

  const std::span<const Call> calls_;
  Values& values_;
  const bool on_gpu_;
  std::vector<Node> nodes_;
  /// A picture and its image, keyed by address.
  std::map<const void*, std::pair<at::Tensor, at::Tensor>> images_;
};

struct Rule {
  /// Adds the call's nodes; if there are no kernels for it, returns false and adds nothing.
  std::function<bool(Lowering& lower, const Call& call)> lower;
  bool on_gpu = true;  ///< a GPU has the kernels, too
};
using Rules = std::map<std::string, Rule>;  ///< by the operator's name
/// `rules`, each also for the operator's gradient, whose name ends in _backward.
inline Rules with_gradients(Rules rules) {
  Rules gradients;
  for (const auto& [name, rule] : rules) gradients.emplace(name + "_backward", rule);
  rules.merge(gradients);
  return rules;
}
#define DECLARE(name) extern const Rules name##_rules;
MILLRACE_OPERATION_FILES(DECLARE)
#undef DECLARE
#define ADDRESS(name) &name##_rules,
inline const Rules* const kRules[] = {MILLRACE_OPERATION_FILES(ADDRESS)};
#undef ADDRESS

/// One thread per element.
inline GpuKernel per_element(const std::string& expression, int count) {
  return {expression, gpu::kThreads, gpu::divided_up(count, gpu::kThreads)};
}

// Operations that several rules use.

Operation make_copy();
Operation channel_sums_of(const at::Tensor& x, float factor);

/// A list's entry for a side, or its last; 0 for an empty list or no list.
int number_of_side(const Call& call, std::size_t argument, std::size_t side);
/// A pool's taps along a side: kernel, stride and padding, then perhaps dilation, from argument
/// `first` on.
kernels::Taps taps_of(const Call& call, std::size_t first, std::size_t side);

/// A map's arguments: the node's operands, each broadcast to its result.
kernels::MapArguments bind_map(const Node& node, const kernels::Map& map);
Operation operation_of(const kernels::Map& map);
/// Adds the map of the operands, each broadcast to `made`, if possible.
bool lower_map(Lowering& lower, const kernels::Map& map, std::vector<at::Tensor> operands,
               const at::Tensor& made);

inline const at::Tensor& tensor(const Call& call, std::size_t argument) {
  return call.arguments[argument].toTensor();
}
inline const at::Tensor& result(const Call& call, std::size_t index = 0) {
  return call.results[index].toTensor();
}
/// Undefined for None.
inline at::Tensor optional(const Call& call, std::size_t argument) {
  return call.arguments[argument].isNone() ? at::Tensor() : tensor(call, argument);
}

/// Whether it is float32 that kernels can copy, whatever its strides.
inline bool is_copyable(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat &&
         (tensor.is_cpu() || (tensor.is_cuda() && tensor.dim() <= kernels::kMostDimensions));
}
/// Whether it could be an image but for its layout.
inline bool is_picture(const at::Tensor& tensor) {
  return is_copyable(tensor) && tensor.dim() == 4 && tensor.size(0) == 1;
}
template <class... Tensors>
bool are_pictures(const Tensors&... tensors) {
  return (is_picture(tensors) && ...);
}
/// Whether each is undefined or contiguous float32.
template <class... Tensors>
bool are_plain(const Tensors&... tensors) {
  return ((!tensors.defined() || (is_dense(tensors) && tensors.is_contiguous())) && ...);
}
/// A matrix's rows as the pixels of an image.
inline at::Tensor as_pixels(const at::Tensor& rows) {
  const std::int64_t pixels = rows.size(0), channels = rows.size(1);
  return rows.as_strided({1, channels, 1, pixels}, {rows.numel(), 1, rows.numel(), channels});
}

}  // namespace millrace::program
