#include "stages/orthogonal.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <cmath>

namespace millrace::stages {
namespace {

void orthogonalize_operator(const at::Tensor& gradient, const at::Tensor& mean,
                            at::IntArrayRef places, double decay, std::int64_t count) {
  const at::Tensor finite = at::isfinite(at::linalg_vector_norm(gradient, INFINITY));
  const at::Tensor next = mean.mul(decay).add_(gradient, (1 - decay) / double(count));
  for (std::size_t i = 0; i < places.size(); i += 2) {
    const at::Tensor c = mean.narrow(0, places[i], places[i + 1]);
    const at::Tensor g = gradient.narrow(0, places[i], places[i + 1]);
    // 0 / 0 at the first gradient.
    const at::Tensor share = (g * c).sum().div_((c * c).sum()).nan_to_num_(0, 0, 0);
    g.addcmul_(c, share, -1);
  }
  mean.copy_(at::where(finite, next, mean));
}

TORCH_LIBRARY_FRAGMENT(millrace, library) {
  library.def(
      "orthogonalize(Tensor(a!) gradient, Tensor(b!) mean, int[] places, float decay, int count) "
      "-> ()",
      torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &orthogonalize_operator));
}

}  // namespace

void orthogonalize(at::Tensor& gradient, at::Tensor& mean, at::IntArrayRef places, double decay,
                   int count) {
  static const auto called = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("millrace::orthogonalize", "")
                                 .typed<decltype(orthogonalize_operator)>();
  called.call(gradient, mean, places, decay, count);
}

}  // namespace millrace::stages
