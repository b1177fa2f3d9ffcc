#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>

#include "stages/stage.h"

namespace millrace::stages {
namespace {

/// Zeros for what the roots do not depend on.
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
  // None arrive where nothing before learns.
  const bool take = !range_.last && !learns_locally() && !output_gradients.empty();
  for (std::size_t i = 0; take && i < after_.size(); ++i)
    gradients[after_[i] + 1] = output_gradients[i];
  return gradients;
}

/// The leaves of `segment` whose gradients stay in the stage.
Tensors Stage::wanted_of(const Segment& segment, int buffer) const {
  Tensors wanted;
  for (const std::size_t parameter : segment.learned)
    wanted.push_back(versions_[buffer].views()[parameter]);
  if (own_loss(segment) && head_)
    wanted.insert(wanted.end(), head_->parameters().begin(), head_->parameters().end());
  return wanted;
}

/// Takes the gradients of wanted_of().
void Stage::add_found(const Segment& segment, const Tensors& found, bool first) {
  const c10::NoGradGuard no_grad;
  const auto take = [first](const at::Tensor& sum, const at::Tensor& gradient) {
    first ? sum.copy_(gradient) : sum.add_(gradient);
  };
  const std::size_t own = segment.learned.size();  // then come the head's
  for (std::size_t i = own; i < found.size(); ++i) take(head_->gradients()[i - own], found[i]);
  for (std::size_t i = 0; i < own && i < found.size(); ++i)
    take(gradient_views_[sum()][segment.learned[i]], found[i]);
}

Tensors Stage::backward_segment(const Segment& segment, SegmentGraph& graph, Gradients& gradients,
                                int buffer, bool with_parameters, bool retain) {
  Tensors roots, root_gradients;
  for (std::size_t i = 0; i < graph.outputs.size(); ++i) {
    if (!graph.outputs[i].requires_grad()) continue;
    roots.push_back(graph.outputs[i]);
    root_gradients.push_back(own_loss(segment) ? at::Tensor() : gradients[segment.gives[i] + 1]);
  }
  if (roots.empty()) return {};
  Tensors wanted = wanted_of(segment, buffer);
  const std::size_t mine = with_parameters ? wanted.size() : 0;
  const bool again = !with_parameters && !wanted.empty();  // the weights' gradient comes later
  if (again) graph.gradients = root_gradients;
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

Tensors Stage::finish(Gradients& gradients) const {
  Tensors inputs;
  for (std::size_t i = 0; passes_on() && i < before_.size(); ++i)
    inputs.push_back(std::move(gradients[before_[i] + 1]));
  return inputs;
}

Tensors Stage::backward(Activations& activations, const Tensors& output_gradients, Adding adding) {
  const Shifted shifted(versions_[activations.buffer].flat(),
                        correction_ ? correction_->backward_shift() : at::Tensor());
  Gradients gradients = start(activations, output_gradients);
  for (std::size_t i = segments_.size(); i-- > 0;) {
    add_found(segments_[i],
              backward_segment(segments_[i], activations.graphs[i], gradients, activations.buffer,
                               /*with_parameters=*/true, adding.retain),
              adding.first);
  }
  if (!adding.retain) activations = {};
  return finish(gradients);
}

Tensors Stage::backward_input(Activations& activations, const Tensors& output_gradients,
                              Adding adding) {
  Gradients gradients = start(activations, output_gradients);
  for (std::size_t i = segments_.size(); i-- > 0;) {
    SegmentGraph& graph = activations.graphs[i];
    backward_segment(segments_[i], graph, gradients, activations.buffer, /*with_parameters=*/false,
                     adding.retain);
    if (graph.gradients.empty() && !adding.retain) graph = {};
  }
  return finish(gradients);
}

void Stage::backward_weight(Activations& activations, Adding adding) {
  for (std::size_t i = segments_.size(); i-- > 0;) {
    SegmentGraph& graph = activations.graphs[i];
    if (graph.gradients.empty()) continue;
    add_found(segments_[i],
              gradients_of(graph.outputs, wanted_of(segments_[i], activations.buffer),
                           graph.gradients, adding.retain),
              adding.first);
  }
  if (!adding.retain) activations = {};
}

}  // namespace millrace::stages
