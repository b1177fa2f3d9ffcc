#include "stages/bytes.h"

#include <ATen/ATen.h>

#include <limits>
#include <tuple>

#include "stages/operators.h"

namespace millrace::stages {
namespace {

/// `ranges`' column as a factor of `values`.
at::Tensor of_lines(const at::Tensor& ranges, int column, const at::Tensor& values) {
  const at::Tensor numbers = ranges.select(1, column);
  return values.dim() == 4 ? numbers.view({1, 1, -1, 1}) : numbers;
}

std::tuple<at::Tensor, at::Tensor> to_bytes(const at::Tensor& values) {
  const std::int64_t lines = values.dim() == 4 ? values.size(2) : 1;
  const at::Tensor rows = values.dim() == 4 ? values.permute({2, 0, 1, 3}).reshape({lines, -1})
                                            : values.reshape({1, -1});
  const at::Tensor least = rows.amin(1), step = (rows.amax(1) - least) * (1.0f / 255);
  const at::Tensor ranges = at::stack({least, step}, 1);
  constexpr float kSmallest = std::numeric_limits<float>::min();
  const at::Tensor inverse =
      at::where(ranges.ge(kSmallest), ranges.reciprocal(), at::zeros({}, ranges.options()));
  return {((values - of_lines(ranges, 0, values)) * of_lines(inverse, 1, values))
              .round_()
              .clamp_(0, 255)
              .to(at::kByte),
          ranges};
}

at::Tensor from_bytes(const at::Tensor& bytes, const at::Tensor& ranges) {
  return bytes.to(at::kFloat).mul_(of_lines(ranges, 1, bytes)).add_(of_lines(ranges, 0, bytes));
}

void fill_sample(const at::Tensor& bytes, const at::Tensor& made) {
  at::Tensor sample = made;
  // The divisor is a tensor: CUDA would multiply with the reciprocal of a number, which is one bit
  // off for half of the values.
  sample.copy_(bytes.permute({2, 0, 1}).unsqueeze(0)).div_(at::full({}, 255, sample.options()));
}

const Operator<fill_sample> sample_operator(
    "sample_of_bytes(Tensor bytes, Tensor(a!) sample) -> ()");
const Operator<to_bytes> quantize_operator("quantize(Tensor values) -> (Tensor, Tensor)");
const Operator<from_bytes> dequantize_operator("dequantize(Tensor bytes, Tensor ranges) -> Tensor");

}  // namespace

Quantized quantize(const at::Tensor& values) {
  const auto [bytes, ranges] = quantize_operator(values.detach());
  return {bytes, ranges};
}

at::Tensor dequantize(const Quantized& values) {
  return dequantize_operator(values.bytes, values.ranges);
}

void sample_of_bytes(const at::Tensor& bytes, at::Tensor& sample) {
  if (!sample.defined()) {
    sample = at::empty({1, bytes.size(2), bytes.size(0), bytes.size(1)},
                       bytes.options().dtype(at::kFloat));
  }
  if (!bytes.is_cuda()) return fill_sample(bytes, sample);
  sample_operator(bytes, sample);
}

}  // namespace millrace::stages
