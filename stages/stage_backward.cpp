// How gradients go back through a stage.
#include <ATen/ATen.h>                     // operators
#include <c10/core/GradMode.h>             // NoGradGuard
#include <torch/csrc/autograd/autograd.h>  // torch::autograd::grad

#include <stdexcept>  // std::logic_error

#include "stages/shifted.h"
#include "stages/stage.h"

namespace millrace::stages {
namespace {

/// Adds `more` to what a module's output has from its other users, if there is any.
void add(at::Tensor& gradient, const at::Tensor& more) {
  gradient = gradient.defined() ? gradient + more : more;
}

}  // namespace

Stage::Gradients Stage::start(const Activations& activations,
                              const Tensors& output_gradients) const {
  if (activations.pieces.empty()) throw std::logic_error("backward without activations");
  Gradients gradients(std::size_t(network_->size()) + 1);
  for (std::size_t i = 0; !range_.last && !greedy() && i < after_.size(); ++i)
    gradients[after_[i] + 1] = output_gradients[i];
  return gradients;
}

/// Whose gradients a piece of `part` leaves with the stage.
Tensors Stage::wanted_of(const Part& part, int buffer) const {
  const auto begin = versions_[buffer].views().begin() + std::ptrdiff_t(part.first_parameter);
  Tensors wanted(begin, begin + std::ptrdiff_t(part.parameters));
  if (own_loss(part) && read_out_)
    wanted.insert(wanted.end(), read_out_->parameters().begin(), read_out_->parameters().end());
  return wanted;
}

/// Takes gradients of what wanted_of() listed.
void Stage::add_found(const Part& part, Tensors found, bool first) {
  if (own_loss(part) && read_out_ && !found.empty()) {
    const auto mine = found.begin() + std::ptrdiff_t(part.parameters);
    read_out_->add(Tensors(mine, found.end()), first);
    found.erase(mine, found.end());
  }
  add_gradients(part.first_parameter, found, first);
}

Tensors Stage::backward_piece(const Part& part, Piece& piece, Gradients& gradients, int buffer,
                              bool with_parameters, bool retain) {
  Tensors roots, root_gradients;
  for (std::size_t i = 0; i < piece.outputs.size(); ++i) {
    if (!piece.outputs[i].requires_grad()) continue;
    roots.push_back(piece.outputs[i]);
    root_gradients.push_back(own_loss(part) ? at::Tensor() : gradients[part.gives[i] + 1]);
  }
  if (roots.empty()) return {};
  Tensors wanted = wanted_of(part, buffer);
  const std::size_t mine = with_parameters ? wanted.size() : 0;
  const bool again = !with_parameters && !wanted.empty();  // the weights' gradient comes later
  if (again) piece.gradients = root_gradients;
  wanted.resize(mine);
  for (const at::Tensor& input : piece.inputs) {
    if (input.requires_grad()) wanted.push_back(input);
  }
  if (wanted.empty()) return {};
  Tensors found = torch::autograd::grad(roots, wanted, root_gradients, again || retain);
  std::size_t next = mine;
  for (std::size_t i = 0; i < piece.inputs.size(); ++i) {
    if (piece.inputs[i].requires_grad()) add(gradients[part.uses[i] + 1], found[next++]);
  }
  found.resize(mine);
  return found;
}

Tensors Stage::finish(Gradients& gradients) const {
  Tensors inputs;
  for (std::size_t i = 0; !range_.first && !greedy() && i < before_.size(); ++i)
    inputs.push_back(std::move(gradients[before_[i] + 1]));
  return inputs;
}

Tensors Stage::backward(Activations& activations, const Tensors& output_gradients) {
  Tensors inputs = backward(activations, output_gradients, {.first = accumulated_ == 0});
  ++accumulated_;
  activations = {};
  return inputs;
}

Tensors Stage::backward(Activations& activations, const Tensors& output_gradients, Adding adding) {
  const Shifted shifted(versions_[activations.buffer].flat(),
                        correction_ ? correction_->backward_shift() : at::Tensor());
  Gradients gradients = start(activations, output_gradients);
  for (std::size_t i = parts_.size(); i-- > 0;) {
    add_found(parts_[i],
              backward_piece(parts_[i], activations.pieces[i], gradients, activations.buffer,
                             /*with_parameters=*/true, adding.retain),
              adding.first);
  }
  return finish(gradients);
}

Tensors Stage::backward_input(Activations& activations, const Tensors& output_gradients) {
  return backward_input(activations, output_gradients, {});
}

Tensors Stage::backward_input(Activations& activations, const Tensors& output_gradients,
                              Adding adding) {
  Gradients gradients = start(activations, output_gradients);
  for (std::size_t i = parts_.size(); i-- > 0;) {
    Piece& piece = activations.pieces[i];
    backward_piece(parts_[i], piece, gradients, activations.buffer, /*with_parameters=*/false,
                   adding.retain);
    if (piece.gradients.empty() && !adding.retain) piece = {};
  }
  return finish(gradients);
}

void Stage::backward_weight(Activations& activations) {
  backward_weight(activations, {.first = accumulated_ == 0});
  ++accumulated_;
  activations = {};
}

void Stage::backward_weight(Activations& activations, Adding adding) {
  for (std::size_t i = parts_.size(); i-- > 0;) {
    Piece& piece = activations.pieces[i];
    if (piece.gradients.empty()) continue;
    add_found(parts_[i],
              torch::autograd::grad(piece.outputs, wanted_of(parts_[i], activations.buffer),
                                    piece.gradients, adding.retain),
              adding.first);
  }
}

void Stage::add_gradients(std::size_t parameter, const Tensors& gradients, bool first) {
  const c10::NoGradGuard no_grad;
  const Tensors& views = gradient_views_[sum()];
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (first) {
      views[parameter + i].copy_(gradients[i]);
    } else {
      views[parameter + i].add_(gradients[i]);
    }
  }
}

}  // namespace millrace::stages
