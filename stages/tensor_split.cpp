#include "stages/tensor_split.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "stages/layers.h"
#include "stages/operators.h"

namespace millrace::stages {
namespace {

using torch::autograd::AutogradContext, torch::autograd::Function, torch::autograd::variable_list;

using ReducerPointer = c10::intrusive_ptr<ReducerArgument>;

/// Pictures are in channels-last order, as in step programs.
at::Tensor add_up(const at::Tensor& part, const ReducerPointer& argument, std::int64_t place) {
  const at::Tensor sum =
      part.clone(part.dim() == 4 ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  argument->reducer->add_up({sum.mutable_data_ptr<float>(), std::size_t(sum.numel())}, int(place));
  return sum.contiguous();
}

TORCH_LIBRARY_FRAGMENT(millrace, library) {
  library.class_<ReducerArgument>("Reducer");
}
const Operator<add_up> added_up(
    "add_up(Tensor part, __torch__.torch.classes.millrace.Reducer reducer, int place) -> Tensor");

// Module m adds up at place 2 m forward, at 2 m + 1 backward.

/// Megatron's f: identity forward, all-reduce backward.
struct Fan : Function<Fan> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const ReducerPointer& reducer, std::int64_t module) {
    context->saved_data["reducer"] = c10::IValue(reducer);
    context->saved_data["module"] = module;
    return x.alias();  // a view's strides would no longer be channels-last
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const int place = int(2 * context->saved_data["module"].toInt() + 1);
    const auto reducer = context->saved_data["reducer"].toCustomClass<ReducerArgument>();
    return {added_up(gradients[0], reducer, place), {}, {}};
  }
};

/// Megatron's g: all-reduce forward, identity backward.
struct Gather : Function<Gather> {
  static at::Tensor forward(AutogradContext*, const at::Tensor& x, const ReducerPointer& reducer,
                            std::int64_t module) {
    return added_up(x, reducer, int(2 * module));
  }
  static variable_list backward(AutogradContext*, variable_list gradients) {
    return {gradients[0], {}, {}};
  }
};

// A rank's modules: whole, or its part of the first or the second of a pair.

std::unique_ptr<Layer> whole_module(const std::shared_ptr<const Network>& network, int index) {
  const Layer& layer = network->module(index);
  return layer_of({.text = layer.describe(),
                   .parameters = layer.parameters(),
                   .of = [=](Values x, Values p) { return network->module(index).forward(x, p); },
                   .names_are_whole = layer.names_are_whole()});
}

std::unique_ptr<Layer> first_part(std::shared_ptr<const Layer> part, std::int64_t module,
                                  const ReducerPointer& reducer) {
  return layer_of(
      {.text = part->describe(), .parameters = part->parameters(), .of = [=](Values x, Values p) {
         if (!x[0].requires_grad()) return part->forward(x, p);
         const at::Tensor fanned = Fan::apply(x[0], reducer, module);
         return part->forward({&fanned, 1}, p);
       }});
}

std::unique_ptr<Layer> second_part(std::shared_ptr<const Layer> part, std::int64_t module,
                                   const ReducerPointer& reducer) {
  return layer_of(
      {.text = part->describe(), .parameters = part->parameters(), .of = [=](Values x, Values p) {
         const at::Tensor unbiased[] = {p[0], at::Tensor()};
         return Gather::apply(part->forward(x, unbiased), reducer, module) +
                p[1].view({1, -1, 1, 1});
       }});
}

/// Whether a later join uses an output of modules [begin, end).
bool is_joined_later(const Network& network, int begin, int end) {
  for (int module = 0; module < network.size(); ++module) {
    if (network.from(module) >= begin && network.from(module) < end) return true;
  }
  return false;
}

/// Module `index` as data; null: it is no FunctionLayer, or has a second input.
const LayerFunction* function_of(const Network& network, int index) {
  if (network.from(index) != kNone) return nullptr;
  const auto* const layer = dynamic_cast<const FunctionLayer*>(&network.module(index));
  return layer ? &layer->is : nullptr;
}

bool is_by_channel(const LayerFunction* function) {
  return function && function->by_channel;
}

/// Whether `ways` ranks can share the two layers, the second split as the first one's output is.
bool are_pair(const LayerFunction* first, const LayerFunction* second, int ways) {
  return first && second && first->column && second->row && first->column(ways) &&
         second->row(ways);
}

}  // namespace

TensorSplit::TensorSplit(std::shared_ptr<const Network> whole, const std::vector<int>& cut,
                         int ways)
    : whole_(std::move(whole)), ways_(ways) {
  std::vector<int> ends = cut;
  ends.push_back(whole_->size());
  int module = 0;
  for (const int end : ends) {
    while (module < end) {
      int other = module + 1;
      while (other < end && is_by_channel(function_of(*whole_, other))) ++other;
      const LayerFunction* const second = other < end ? function_of(*whole_, other) : nullptr;
      if (!are_pair(function_of(*whole_, module), second, ways) ||
          is_joined_later(*whole_, module, other)) {
        ++module;
        continue;
      }
      pairs_.push_back({module, other});
      for (const char* name : {".weight", ".bias"}) dimensions_[std::to_string(module) + name] = 0;
      dimensions_[std::to_string(other) + ".weight"] = 1;
      module = other + 1;
    }
  }
}

std::shared_ptr<const Network> TensorSplit::part(std::shared_ptr<Reducer> reducer) const {
  std::vector<std::unique_ptr<Layer>> modules;
  std::vector<int> from;
  std::vector<ImageShape> shapes = {whole_->shape(kSample)};
  const auto argument = c10::make_intrusive<ReducerArgument>(std::move(reducer));
  for (int module = 0; module < whole_->size(); ++module) {
    modules.push_back(whole_module(whole_, module));
    from.push_back(whole_->from(module));
    shapes.push_back(whole_->shape(module));
  }
  for (const auto& [first, second] : pairs_) {
    modules[first] = first_part(function_of(*whole_, first)->column(ways_), first, argument);
    modules[second] = second_part(function_of(*whole_, second)->row(ways_), second, argument);
    for (int module = first; module < second; ++module) shapes[module + 1].channels /= ways_;
  }
  auto network = std::make_shared<Network>(std::move(modules), std::move(from), std::move(shapes),
                                           whole_->channels_last());
  std::vector<std::string> fixed;
  for (const ParameterSpec& spec : whole_->parameters(0, whole_->size())) {
    if (spec.fixed) fixed.push_back(spec.name);
  }
  network->freeze(fixed);
  return network;
}

int TensorSplit::dimension(const std::string& name, const at::Tensor& entry) const {
  const std::string parameter = parameter_of(name);
  const auto found = dimensions_.find(parameter);
  // An optimizer's buffer has the parameter's layout, but for counts of updates.
  const bool count = name != parameter && entry.numel() == 1;
  return found == dimensions_.end() || count || entry.dim() <= found->second ? -1 : found->second;
}

StateDict TensorSplit::part_of(const StateDict& whole, int part) const {
  StateDict parts;
  for (const auto& [name, tensor] : whole) {
    const int along = dimension(name, tensor);
    parts.emplace_back(
        name, along < 0 ? tensor : tensor.chunk(ways_, along)[std::size_t(part)].contiguous());
  }
  return parts;
}

StateDict TensorSplit::whole_of(const StateDict& parts) const {
  std::map<std::string, std::vector<at::Tensor>> found;
  for (const auto& [name, tensor] : parts) found[name].push_back(tensor);
  StateDict whole;
  for (const auto& [name, tensor] : parts) {
    const auto all = found.extract(name);
    if (all.empty()) continue;  // already done
    // An entry that is not split is equal on all ranks.
    const int along = dimension(name, tensor);
    whole.emplace_back(name, along < 0 ? tensor : at::cat(all.mapped(), along));
  }
  return whole;
}

}  // namespace millrace::stages
