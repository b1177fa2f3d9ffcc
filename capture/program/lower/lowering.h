// From LibTorch's operators to nodes: what the files beside share.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "capture/program/node.h"

namespace millrace::program {

/// A program's nodes so far.
///
/// Kernels read and write images. A picture that lies otherwise has one beside, and copies keep
/// the picture itself, which fuse() leaves out again if nobody else reads it.
class Lowering {
 public:
  Lowering(std::span<const Call> calls, OwnMemory& own, bool on_gpu)
      : calls_(calls), own_(own), on_gpu_(on_gpu) {}

  std::vector<Node> run();

  bool on_gpu() const { return on_gpu_; }
  /// All of them.
  std::span<const Call> calls() const { return calls_; }

  /// Of the call under way. \returns true, as a rule does that was followed.
  bool add(Node node);
  /// The same for a node that makes `made`'s image, which comes first among its writes; undefined:
  /// it is not wanted.
  bool add_image(const at::Tensor& made, Node node);

  /// Memory of the program's own.
  at::Tensor own(at::IntArrayRef sizes, at::MemoryFormat format, c10::Device device);
  /// Likewise, of the tensor's sizes and strides.
  at::Tensor own_like(const at::Tensor& tensor);

  /// `tensor` as an image, to read.
  at::Tensor read(const at::Tensor& tensor);
  bool has_image(const at::Tensor& tensor) const {
    return images_.count(tensor.const_data_ptr()) > 0;
  }
  /// An image for what `tensor` is to hold; to be followed by written().
  at::Tensor image_for(const at::Tensor& tensor);
  bool written(const at::Tensor& tensor, const at::Tensor& image);
  /// It, or a copy without gaps.
  at::Tensor contiguous(const at::Tensor& tensor);

 private:
  bool translated(const Call& call, const std::string& name);
  /// The LibTorch operator that it was.
  void left(const Call& call);

  const std::span<const Call> calls_;
  OwnMemory& own_;
  const bool on_gpu_;
  const Call* call_ = nullptr;  ///< under way
  std::vector<Node> nodes_;
  /// By address: the picture and its image.
  std::map<const void*, std::pair<at::Tensor, at::Tensor>> images_;
};

/// How an operator is lowered.
struct Rule {
  /// Adds what the call comes to; false, and nothing is added, if there are no kernels for it.
  std::function<bool(Lowering& lower, const Call& call)> lower;
  bool on_gpu = true;  ///< a GPU has such kernels, too
};
using Rules = std::map<std::string, Rule>;  ///< by the operator's name
extern const Rules convolution_rules, element_rules, norm_rules, pool_rules, copy_rules;

/// Adds the map's function of the operands, each of which is spread over `made`, if that can be.
bool lower_map(Lowering& lower, kernels::Map map, std::vector<at::Tensor> operands,
               const at::Tensor& made);

// What an operator was given and gave.

inline const at::Tensor& tensor(const Call& call, std::size_t argument) {
  return call.arguments[argument].toTensor();
}
inline const at::Tensor& result(const Call& call, std::size_t index = 0) {
  return call.results[index].toTensor();
}
/// Undefined where there is none.
inline at::Tensor optional(const Call& call, std::size_t argument) {
  return call.arguments[argument].isNone() ? at::Tensor() : tensor(call, argument);
}

constexpr std::int64_t kMostDimensionsOnGpu = 5;
/// Whether it is float32 and kernels can copy it, whatever its strides.
inline bool is_copyable(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kFloat &&
         (tensor.is_cpu() || (tensor.is_cuda() && tensor.dim() <= kMostDimensionsOnGpu));
}
/// Whether it could be an image, laid out otherwise.
inline bool is_picture(const at::Tensor& tensor) {
  return is_copyable(tensor) && tensor.dim() == 4 && tensor.size(0) == 1;
}
template <class... Tensors>
bool are_pictures(const Tensors&... tensors) {
  return (is_picture(tensors) && ...);
}
/// Whether each is undefined or float32 without gaps.
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
