#include "stages/sample_of_bytes.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

namespace millrace::stages {

namespace {

void fill_sample(const at::Tensor& bytes, const at::Tensor& made) {
  at::Tensor sample = made;
  // The divisor is a tensor: CUDA would multiply with the reciprocal of a number, which is one bit
  // off for half of the values.
  sample.copy_(bytes.permute({2, 0, 1}).unsqueeze(0)).div_(at::full({}, 255, sample.options()));
}

TORCH_LIBRARY_FRAGMENT(millrace, library) {
  library.def("sample_of_bytes(Tensor bytes, Tensor(a!) sample) -> ()",
              torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, &fill_sample));
}

}  // namespace

void sample_of_bytes(const at::Tensor& bytes, at::Tensor& sample) {
  if (!sample.defined()) {
    sample = at::empty({1, bytes.size(2), bytes.size(0), bytes.size(1)},
                       bytes.options().dtype(at::kFloat));
  }
  if (!bytes.is_cuda()) return fill_sample(bytes, sample);
  static const auto called = c10::Dispatcher::singleton()
                                 .findSchemaOrThrow("millrace::sample_of_bytes", "")
                                 .typed<decltype(fill_sample)>();
  called.call(bytes, sample);
}

}  // namespace millrace::stages
