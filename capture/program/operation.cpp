#include "capture/program/operation.h"

#include <ATen/core/Tensor.h>

#include <algorithm>

namespace millrace::program {
namespace {

class Called final : public Prepared {
 public:
  Called(bool shared, KernelCall call) : shared_(shared), call_(std::move(call)) {
    info.kernel = kernels::instruction_set();
  }
  std::vector<bool> phases() const override { return {shared_}; }
  void bind(const Node& node, char*) override {
    std::transform(node.reads.begin(), node.reads.end(), at_.reads.begin(), floats);
    std::transform(node.writes.begin(), node.writes.end(), at_.writes.begin(), floats);
  }
  void run(int, kernels::Share share) override { call_(at_, share); }

 private:
  const bool shared_;
  const KernelCall call_;
  Addresses at_;
};

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

Operation::OnCores by_team(KernelCall call) {
  return [=](const Node&, int) { return std::make_unique<Called>(true, call); };
}
Operation::OnCores by_one(KernelCall call) {
  return [=](const Node&, int) { return std::make_unique<Called>(false, call); };
}

}  // namespace millrace::program
