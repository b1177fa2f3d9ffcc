#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

#include "stages/stage.h"

namespace millrace::stages {
namespace {

/// Zeros for tensors on which the roots do not depend.
Tensors gradients_of(const Tensors& roots, const Tensors& wanted, const Tensors& root_gradients,
                     bool retain) {
  Tensors found = torch::autograd::grad(roots, wanted, root_gradients, retain,
                                        /*create_graph=*/false, /*allow_unused=*/true);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i].defined()) found[i] = at::zeros_like(wanted[i]);
  }
  return found;
}

/// Accumulates the gradient of a module's output over its users.
void add(at::Tensor& gradient, const at::Tensor& more) {
  gradient = gradient.defined() ? gradient + more : more;
}

}  // namespace

Stage::Gradients Stage::start(const Activations& activations,
                              const Tensors& output_gradients) const {
  if (activations.graphs.empty()) throw std::logic_error("backward without activations");
  Gradients gradients(std::size_t(network_->size()) + 1);
  // No gradients arrive if no earlier stage learns.
  const bool take = !range_.last && !activations.local && !output_gradients.empty();
  for (std::size_t i = 0; take && i < after_.size(); ++i)
    gradients[after_[i] + 1] = output_gradients[i];
  return gradients;
}

/// The leaves of `segment` whose gradients stay in the stage.
Tensors Stage::wanted_of(const Segment& segment, const Activations& activations) const {
  Tensors wanted;
  for (const std::size_t parameter : segment.learned)
    wanted.push_back(versions_[activations.buffer].views()[parameter]);
  if (ends_in_loss(segment, activations) && head_)
    wanted.insert(wanted.end(), head_->parameters().begin(), head_->parameters().end());
  return wanted;
}

void Stage::add_found(const Segment& segment, const Activations& activations, const Tensors& found,
                      bool first) {
  const c10::NoGradGuard no_grad;
  const bool from_downstream = supervised() && !activations.local;
  const double weight = from_downstream ? options_.correction.downstream_weight(options_.delay) : 1;
  const auto take = [=](const at::Tensor& sum, const at::Tensor& gradient) {
    if (first) {
      sum.copy_(weight == 1 ? gradient : gradient * weight);
    } else {
      sum.add_(gradient, weight);
    }
  };
  const std::size_t own = segment.learned.size();  // the head's follow
  for (std::size_t i = own; i < found.size(); ++i) take(head_->gradients()[i - own], found[i]);
  for (std::size_t i = 0; i < own && i < found.size(); ++i)
    take(gradient_views_[sum()][segment.learned[i]], found[i]);
  if (!from_downstream || !first) return;
  for (const at::Tensor& sum : head_->gradients()) sum.zero_();  // it saw no sample
}

/// Gradients of a segment's outputs with respect to its inputs and, `with_parameters`, to its
/// wanted_of(), which are returned.
Tensors Stage::backward_segment(const Segment& segment, const Activations& activations,
                                SegmentGraph& graph, Gradients& gradients, bool with_parameters,
                                bool retain) {
  const bool loss = ends_in_loss(segment, activations);
  Tensors roots, root_gradients;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    const at::Tensor gradient = loss ? at::Tensor() : gradients[segment.gives[i] + 1];
    if (!graph.outputs[i].requires_grad() || !(loss || gradient.defined())) continue;
    roots.push_back(graph.outputs[i]);
    root_gradients.push_back(gradient);
  }
  if (roots.empty()) return {};
  Tensors wanted = wanted_of(segment, activations);
  const std::size_t mine = with_parameters ? wanted.size() : 0;
  const bool again = !with_parameters && !wanted.empty();  // the weights' gradient comes later
  if (again) {
    graph.roots = roots;
    graph.gradients = root_gradients;
  }
  wanted.resize(mine);
  for (const at::Tensor& input : graph.inputs) {
    if (input.requires_grad()) wanted.push_back(input);
  }
  if (wanted.empty()) return {};
  Tensors found = gradients_of(roots, wanted, root_gradients, again || retain);
  std::size_t next = mine;
  for (std::size_t i = 0; i < graph.inputs.size(); ++i) {
    if (graph.inputs[i].requires_grad()) add(gradients[segment.uses[i] + 1], found[next++]);
  }
  found.resize(mine);
  return found;
}

Tensors Stage::finish(const Activations& activations, Gradients& gradients) const {
  Tensors inputs;
  for (std::size_t i = 0; passes_on() && i < before_.size(); ++i) {
    at::Tensor& found = gradients[before_[i] + 1];
    inputs.push_back(found.defined() ? std::move(found) : at::zeros_like(activations.inputs[i]));
  }
  return inputs;
}

Stage::Gradients Stage::backpropagate(Activations& activations, const Tensors& output_gradients,
                                      Adding adding) {
  const Shifted shifted(versions_[activations.buffer].flat(),
                        correction_ ? correction_->backward_shift() : at::Tensor());
  Gradients gradients = start(activations, output_gradients);
  for (std::size_t i = segments_.size(); i-- > 0;) {
    add_found(segments_[i], activations,
              backward_segment(segments_[i], activations, activations.graphs[i], gradients,
                               /*with_parameters=*/true, adding.retain),
              adding.first);
  }
  return gradients;
}

Tensors Stage::backward(Activations& activations, const Tensors& output_gradients, Adding adding) {
  Gradients gradients = backpropagate(activations, output_gradients, adding);
  Tensors inputs = finish(activations, gradients);
  if (!adding.retain) activations = {};
  return inputs;
}

void Stage::backward_local(Activations& activations, Adding adding) {
  backpropagate(activations, {}, adding);
  if (adding.retain) return;
  activations.graphs.clear();
  if (!activations.stored.empty()) activations.inputs.clear();
}

Tensors Stage::backward_input(Activations& activations, const Tensors& output_gradients,
                              Adding adding) {
  Gradients gradients = start(activations, output_gradients);
  for (std::size_t i = segments_.size(); i-- > 0;) {
    SegmentGraph& graph = activations.graphs[i];
    backward_segment(segments_[i], activations, graph, gradients, /*with_parameters=*/false,
                     adding.retain);
    if (graph.gradients.empty() && !adding.retain) graph = {};
  }
  return finish(activations, gradients);
}

void Stage::backward_weight(Activations& activations, Adding adding) {
  for (std::size_t i = segments_.size(); i-- > 0;) {
    SegmentGraph& graph = activations.graphs[i];
    if (graph.gradients.empty()) continue;
    add_found(segments_[i], activations,
              gradients_of(graph.roots, wanted_of(segments_[i], activations), graph.gradients,
                           adding.retain),
              adding.first);
  }
  if (!adding.retain) activations = {};
}

}  // namespace millrace::stages
