#include "capture/program/operation.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace millrace::program {
namespace {

bool any_on_gpu(const std::vector<at::Tensor>& tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& t) { return t.defined() && t.is_cuda(); });
}

}  // namespace

std::unique_ptr<Prepared> prepare(const Node& node, int threads) {
  auto made = any_on_gpu(node.reads) || any_on_gpu(node.writes)
                  ? node.operation.on_gpu(node)
                  : node.operation.on_cores(node, threads);
  if (made->info.name.empty()) made->info.name = node.operation.name;
  return made;
}

}  // namespace millrace::program
