#include "capture/program/lowering.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <set>
#include <stdexcept>

namespace millrace::program {
namespace {

/// Operators that leave their results uninitialized.
bool only_allocates(const Call& call) {
  static const std::set<std::string> names = {"aten::empty", "aten::empty_like",
                                              "aten::empty_strided", "aten::new_empty",
                                              "aten::new_empty_strided"};
  return names.count(call.name()) > 0;
}

/// Whether its results are its arguments' memory, unchanged.
bool only_names(const Call& call) {
  const c10::FunctionSchema& schema = call.operation.schema();
  if (call.name() == "aten::as_strided_") return true;
  if (schema.is_mutable() || call.results.empty()) return false;
  bool names = true;
  each_tensor(call.results, [&](const at::Tensor& made) {
    bool given = false;
    each_tensor(call.arguments, [&](const at::Tensor& t) { given |= made.is_alias_of(t); });
    names &= given;
  });
  return names;
}

const Rule* rule_of(const std::string& name, bool on_gpu) {
  for (const Rules* const rules : kRules) {
    const auto found = rules->find(name);
    if (found != rules->end() && (!on_gpu || found->second.on_gpu)) return &found->second;
  }
  return nullptr;
}

/// A LibTorch operator on the tensors of its recording.
class TorchCall final : public Prepared {
 public:
  explicit TorchCall(const Call& call) : call_(call) {
    info.name = call.name();
    info.kernel = capture::kLibTorch;
  }
  void bind(const Node&, char*) override {}
  void run(int, kernels::Share) override {
    stack_.assign(call_.arguments.begin(), call_.arguments.end());
    call_.operation.callBoxed(stack_);
    for (std::size_t i = 0; i < stack_.size(); ++i) keep(call_.results[i], stack_[i]);
    stack_.clear();
  }

 private:
  void keep(const c10::IValue& recorded, const c10::IValue& made) const {
    if (recorded.isTensor()) keep(recorded.toTensor(), made.toTensor());
    if (!recorded.isTensorList()) return;
    const std::vector<at::Tensor> all = recorded.toTensorVector(), now = made.toTensorVector();
    for (std::size_t i = 0; i < all.size(); ++i) keep(all[i], now[i]);
  }
  /// Leaves `made` where the recorded call, which may have asked for less, left its result.
  void keep(at::Tensor recorded, const at::Tensor& made) const {
    if (!recorded.defined() || recorded.const_data_ptr() == made.const_data_ptr()) return;
    if (!made.defined() || recorded.sizes() != made.sizes())
      throw std::logic_error(info.name + " gives another shape than when it was recorded");
    recorded.copy_(made);
  }
  const Call call_;
  torch::jit::Stack stack_;
};

}  // namespace

std::vector<Node> Lowering::run() {
  lower(calls_);
  return std::move(nodes_);
}

void Lowering::lower(std::span<const Call> calls) {
  for (const Call& call : calls) {
    if (only_allocates(call) || only_names(call)) continue;
    if (!translated(call, call.name())) left(call);
  }
}

bool Lowering::compose(const std::function<void()>& body) {
  const c10::NoGradGuard no_grad;
  const std::vector<Call> calls = record_calls(body);
  values_.add_made(calls);
  lower(calls);
  return true;
}

bool Lowering::translated(const Call& call, const std::string& name) {
  if (const Rule* rule = rule_of(name, on_gpu_)) return rule->lower(*this, call);
  const bool in_place = name.ends_with('_');
  return in_place && translated(call, name.substr(0, name.size() - 1));
}

void Lowering::left(const Call& call) {
  std::vector<at::Tensor> reads, writes;
  each_tensor(call.arguments, [&](const at::Tensor& t) { reads.push_back(t); });
  each_tensor(call.results, [&](const at::Tensor& t) { writes.push_back(t); });
  const std::vector<c10::Argument>& arguments = call.operation.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].alias_info() || !arguments[i].alias_info()->isWrite()) continue;
    each_tensor({call.arguments[i]}, [&](const at::Tensor& t) { writes.push_back(t); });
  }
  static const std::set<std::string> constants = {
      "aten::arange", "aten::full",      "aten::full_like",     "aten::linspace",
      "aten::ones",   "aten::ones_like", "aten::scalar_tensor",
  };
  const auto prepared = [call](const Node&, int = 1) { return std::make_unique<TorchCall>(call); };
  add({.name = call.name(),
       .constant = constants.count(call.name()) > 0,
       .in_place = true,
       .on_cores = prepared,
       .on_gpu = prepared},
      std::move(reads), std::move(writes));
}

bool Lowering::add(Operation operation, std::vector<at::Tensor> reads,
                   std::vector<at::Tensor> writes) {
  for (const at::Tensor& written : writes) {
    if (!written.defined()) continue;
    std::erase_if(images_, [&](const auto& entry) {
      return range_of(entry.second.first).overlaps(range_of(written));
    });
  }
  nodes_.push_back({std::move(operation), std::move(reads), std::move(writes)});
  return true;
}

bool Lowering::add_image(const at::Tensor& made, Operation operation, std::vector<at::Tensor> reads,
                         std::vector<at::Tensor> more) {
  const at::Tensor image = made.defined() ? image_for(made) : at::Tensor();
  more.insert(more.begin(), image);
  add(std::move(operation), std::move(reads), std::move(more));
  return !made.defined() || written(made, image);
}

bool Lowering::copy(const at::Tensor& from, const at::Tensor& to) {
  return add(make_copy(), {from}, {to});
}

at::Tensor Lowering::own(const at::Tensor& like, std::optional<at::MemoryFormat> format) {
  const at::Tensor made = format ? at::empty(like.sizes(), like.options().memory_format(*format))
                                 : at::empty_strided(like.sizes(), like.strides(), like.options());
  values_.add(made);
  return made;
}

at::Tensor Lowering::read(const at::Tensor& tensor) {
  if (is_image(tensor)) return tensor;
  const auto found = images_.find(tensor.const_data_ptr());
  if (found != images_.end() && found->second.first.sizes() == tensor.sizes() &&
      found->second.first.strides() == tensor.strides())
    return found->second.second;
  const at::Tensor image = own(tensor, image_format(tensor.device()));
  copy(tensor, image);
  images_[tensor.const_data_ptr()] = {tensor, image};
  return image;
}

at::Tensor Lowering::image_for(const at::Tensor& tensor) {
  return is_image(tensor) ? tensor : own(tensor, image_format(tensor.device()));
}

bool Lowering::written(const at::Tensor& tensor, const at::Tensor& image) {
  if (tensor.is_same(image)) return true;
  copy(image, tensor);
  images_[tensor.const_data_ptr()] = {tensor, image};
  return true;
}

at::Tensor Lowering::contiguous(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor;
  const at::Tensor made = own(tensor, at::MemoryFormat::Contiguous);
  copy(tensor, made);
  return made;
}

std::vector<Node> translate(const std::vector<Call>& calls, Values& values, bool on_gpu) {
  return Lowering(calls, values, on_gpu).run();
}

}  // namespace millrace::program
