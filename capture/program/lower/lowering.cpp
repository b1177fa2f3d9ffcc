#include "capture/program/lower/lowering.h"

#include <ATen/ATen.h>

#include <set>

namespace millrace::program {
namespace {

/// Operators that leave their results uninitialized.
bool only_allocates(const Call& call) {
  static const std::set<std::string> names = {"aten::empty", "aten::empty_like",
                                              "aten::empty_strided", "aten::new_empty",
                                              "aten::new_empty_strided"};
  return names.count(call.name()) > 0;
}

bool only_names(const Call& call) {
  const c10::FunctionSchema& schema = call.operation.schema();
  if (call.name() == "aten::as_strided_") return true;
  if (schema.is_mutable() || call.results.empty()) return false;
  for (const c10::Argument& returned : schema.returns()) {
    if (!returned.alias_info()) return false;
  }
  return true;
}

const Rule* rule_of(const std::string& name, bool on_gpu) {
  for (const Rules* rules :
       {&convolution_rules, &element_rules, &norm_rules, &pool_rules, &copy_rules}) {
    const auto found = rules->find(name);
    if (found != rules->end() && (!on_gpu || found->second.on_gpu)) return &found->second;
  }
  return nullptr;
}

}  // namespace

std::vector<Node> Lowering::run() {
  for (const Call& call : calls_) {
    if (only_allocates(call) || only_names(call)) continue;
    call_ = &call;
    if (!translated(call, call.name())) left(call);
  }
  return std::move(nodes_);
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
  add({.kind = Kind::torch, .reads = std::move(reads), .writes = std::move(writes)});
}

bool Lowering::add(Node node) {
  for (const at::Tensor& written : node.writes) {
    if (!written.defined()) continue;
    std::erase_if(images_, [&](const auto& entry) {
      return range_of(entry.second.first).overlaps(range_of(written));
    });
  }
  node.call = call_;
  nodes_.push_back(std::move(node));
  return true;
}

bool Lowering::add_image(const at::Tensor& made, Node node) {
  const at::Tensor image = made.defined() ? image_for(made) : at::Tensor();
  node.writes.insert(node.writes.begin(), image);
  add(std::move(node));
  return !made.defined() || written(made, image);
}

at::Tensor Lowering::own(const at::Tensor& like, std::optional<at::MemoryFormat> format) {
  const at::Tensor made = format ? at::empty(like.sizes(), like.options().memory_format(*format))
                                 : at::empty_strided(like.sizes(), like.strides(), like.options());
  own_.add(made);
  return made;
}

at::Tensor Lowering::read(const at::Tensor& tensor) {
  if (is_image(tensor)) return tensor;
  const auto found = images_.find(tensor.const_data_ptr());
  if (found != images_.end() && found->second.first.sizes() == tensor.sizes() &&
      found->second.first.strides() == tensor.strides())
    return found->second.second;
  const at::Tensor image = own(tensor, image_format(tensor.device()));
  add({.kind = Kind::copy, .reads = {tensor}, .writes = {image}});
  images_[tensor.const_data_ptr()] = {tensor, image};
  return image;
}

at::Tensor Lowering::image_for(const at::Tensor& tensor) {
  return is_image(tensor) ? tensor : own(tensor, image_format(tensor.device()));
}

bool Lowering::written(const at::Tensor& tensor, const at::Tensor& image) {
  if (tensor.is_same(image)) return true;
  add({.kind = Kind::copy, .reads = {image}, .writes = {tensor}});
  images_[tensor.const_data_ptr()] = {tensor, image};
  return true;
}

at::Tensor Lowering::contiguous(const at::Tensor& tensor) {
  if (tensor.is_contiguous()) return tensor;
  const at::Tensor made = own(tensor, at::MemoryFormat::Contiguous);
  add({.kind = Kind::copy, .reads = {tensor}, .writes = {made}});
  return made;
}

std::vector<Node> translate(const std::vector<Call>& calls, OwnMemory& own, bool on_gpu) {
  return Lowering(calls, own, on_gpu).run();
}

}  // namespace millrace::program
