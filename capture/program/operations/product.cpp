// Products of matrices. Linear layers are 1x1 convolutions over a picture with a row in each pixel.
#include <ATen/ATen.h>

#include "capture/program/lowering.h"
#include "capture/program/operations/convolution.h"

namespace millrace::program {
namespace {

bool is_matrix(const at::Tensor& tensor) {
  return is_dense(tensor) && tensor.dim() == 2;
}
bool add_pointwise(Lowering& lower, kernels::Pass pass, const at::Tensor& input,
                   const at::Tensor& output, std::vector<at::Tensor> reads,
                   std::vector<at::Tensor> writes) {
  return lower.add(
      convolution_of({.pass = pass, .input = layout_of(input), .output = layout_of(output)}),
      std::move(reads), std::move(writes));
}

/// a b. Memory order tells the roles: for samples [T,C] and weights [N,C], a layer's output is x
/// w', its input gradient dy w, its weight gradient dy' x.
bool add_product(Lowering& lower, const at::Tensor& a, const at::Tensor& b, const at::Tensor& bias,
                 const at::Tensor& made) {
  if (!is_matrix(a) || !is_matrix(b) || !is_matrix(made) || !made.is_contiguous()) return false;
  // Both transposed is (b a)', for which there is no kernel.
  if (a.size(1) > 1 && !a.is_contiguous() && !b.is_contiguous() && b.t().is_contiguous())
    return add_product(lower, lower.contiguous(a), b, bias, made);
  const at::Tensor a_turned = a.t(), b_turned = b.t();
  if (!bias.defined() && a_turned.is_contiguous() && b.is_contiguous() &&
      (a.size(1) == 1 || !a.is_contiguous())) {
    const at::Tensor dy = as_pixels(a_turned), x = as_pixels(b);
    return add_pointwise(lower, kernels::Pass::kWeightGradient, x, dy, {dy, x}, {made, {}});
  }
  if (!a.is_contiguous()) return false;
  const at::Tensor from = as_pixels(a), to = as_pixels(made);
  if (b_turned.is_contiguous()) {
    std::vector<at::Tensor> reads = {from, b_turned};
    if (bias.defined()) reads.push_back(bias);
    return add_pointwise(lower, kernels::Pass::kForward, from, to, std::move(reads), {to});
  }
  return !bias.defined() && b.is_contiguous() &&
         add_pointwise(lower, kernels::Pass::kDataGradient, to, from, {from, b}, {to});
}
bool product(Lowering& lower, const Call& call) {
  return add_product(lower, tensor(call, 0), tensor(call, 1), {}, result(call));
}
// addmm(bias, a, b, beta, alpha)
bool product_and_bias(Lowering& lower, const Call& call) {
  const at::Tensor &bias = tensor(call, 0), &made = result(call);
  return call.arguments[3].toScalar().toDouble() == 1 &&
         call.arguments[4].toScalar().toDouble() == 1 && is_dense(bias) && bias.dim() == 1 &&
         bias.size(0) == made.size(1) &&
         add_product(lower, tensor(call, 1), tensor(call, 2), bias, made);
}

}  // namespace

const Rules product_rules = {
    {"aten::mm", {product, false}},
    {"aten::addmm", {product_and_bias, false}},
};

}  // namespace millrace::program
