#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "capture/program/cuda/arguments.h"
#include "capture/program/cuda/plans.h"
#include "capture/program/operation.h"

namespace millrace::program {
namespace {

/// Tensors of one size, dimensions in the first one's memory order and merged where all allow.
class Together {
 public:
  explicit Together(const std::vector<at::Tensor>& tensors) : strides_(tensors.size()) {
    const at::Tensor& first = tensors[0];
    for (const std::int64_t d : by_stride(first)) add(tensors, d);
    if (sizes_.empty()) {
      sizes_ = {1};
      for (std::vector<int>& strides : strides_) strides = {1};
    }
    TORCH_CHECK(sizes_.size() <= gpu::kMostDimensions, "a map of too many dimensions");
    TORCH_CHECK(first.numel() <= std::numeric_limits<int>::max(), "a map of too many elements");
  }

  const std::vector<int>& sizes() const { return sizes_; }
  void put_strides(std::size_t tensor, int* to) const {
    std::copy(strides_[tensor].begin(), strides_[tensor].end(), to);
  }
  /// Whether elements of this tensor come in aligned fours or are all the same.
  bool in_fours(std::size_t tensor) const {
    const std::vector<int>& strides = strides_[tensor];
    return sizes_.back() % 4 == 0 && strides.back() <= 1 &&
           std::all_of(strides.begin(), strides.end() - 1, [](int s) { return s % 4 == 0; });
  }

 private:
  void add(const std::vector<at::Tensor>& tensors, std::int64_t d) {
    const auto size = int(tensors[0].size(d));
    bool goes_on = !sizes_.empty();
    for (std::size_t i = 0; i < tensors.size(); ++i)
      goes_on = goes_on && strides_[i].back() == int(tensors[i].stride(d)) * size;
    if (goes_on) {
      sizes_.back() *= size;
    } else {
      sizes_.push_back(size);
    }
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!goes_on) strides_[i].push_back(0);
      strides_[i].back() = int(tensors[i].stride(d));
    }
  }

  std::vector<int> sizes_;
  std::vector<std::vector<int>> strides_;  ///< per tensor
};

/// A number on the host is passed by value.
gpu::Spread spread(const Node& node, std::size_t operand) {
  gpu::Spread made{};
  if (operand >= node.reads.size()) return made;
  const at::Tensor& tensor = node.reads[operand];
  if (tensor.is_cpu()) {
    made.number = tensor.item().toFloat();
  } else {
    made.at = floats(tensor);
  }
  return made;
}

std::unique_ptr<Prepared> prepare_map(const Node& node, const std::string& function,
                                      const kernels::Map& map) {
  std::vector<at::Tensor> tensors = {node.writes[0]};
  for (const at::Tensor& operand : node.reads)
    tensors.push_back(operand.expand(node.writes[0].sizes()));
  const Together together(tensors);
  bool fours = together.in_fours(0) && holds_fours(floats(tensors[0]));
  for (std::size_t i = 1; i < tensors.size(); ++i)
    fours =
        fours && (tensors[i].is_cpu() || (together.in_fours(i) && holds_fours(floats(tensors[i]))));
  const int floats_each = fours ? 4 : 1, count = int(node.writes[0].numel());
  return gpu_call({{"map<millrace::gpu::" + function + ", " + numbers(floats_each) + ">",
                    gpu::kThreads, gpu::divided_up(count, gpu::kThreads * floats_each)}},
                  [=](const Node& n, char*) {
                    gpu::MapArguments m{.left = spread(n, 0),
                                        .right = spread(n, 1),
                                        .made = floats(n.writes[0]),
                                        .dimensions = int(together.sizes().size()),
                                        .count = count};
                    std::copy(together.sizes().begin(), together.sizes().end(), m.sizes);
                    together.put_strides(0, m.made_strides);
                    if (m.left.at) together.put_strides(1, m.left.strides);
                    if (m.right.at) together.put_strides(2, m.right.strides);
                    std::copy(std::begin(map.numbers), std::end(map.numbers), m.numbers);
                    return m;
                  })(node);
}

}  // namespace

Operation::OnGpu gpu_map(const std::string& function, const kernels::Map& map) {
  return [=](const Node& node) { return prepare_map(node, function, map); };
}

}  // namespace millrace::program
