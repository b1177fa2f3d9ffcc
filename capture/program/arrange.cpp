#include <algorithm>

#include "capture/program/operations/convolution.h"

namespace millrace::program {
namespace {

/// Merges a convolution's two gradients into one node where that is faster on a core.
void pair_gradients(std::vector<Node>& nodes) {
  for (std::size_t i = 0; i + 1 < nodes.size(); ++i) {
    Node& data = nodes[i];
    Node& weights = nodes[i + 1];
    Convolve* const both = as_pass(data, kernels::Pass::kDataGradient);
    const Convolve* const other = as_pass(weights, kernels::Pass::kWeightGradient);
    if (!both || !other || !same_memory(data.reads[0], weights.reads[0]) ||
        !weights.writes[0].defined() || both->convolution.input != other->convolution.input ||
        both->convolution.kernel != other->convolution.kernel ||
        !kernels::gradients_together(both->convolution))
      continue;
    both->convolution.pass = kernels::Pass::kGradients;
    both->convolution.accumulate = other->convolution.accumulate;
    data.reads.insert(data.reads.begin() + 2, weights.reads[1]);
    data.writes.insert(data.writes.end(), weights.writes.begin(), weights.writes.end());
    weights = {};
  }
}

/// On a GPU one launch, in place of the last weight gradient's, computes several: one keeps few SMs
/// busy.
void gather_weight_gradients(std::vector<Node>& nodes, Values& values) {
  std::size_t last = nodes.size();
  for (std::size_t i = nodes.size(); i-- > 0;) {
    Node& node = nodes[i];
    Convolve* const gradient = as_pass(node, kernels::Pass::kWeightGradient);
    if (!gradient) continue;
    gradient->group = {gradient->convolution};
    const bool can_wait =
        last < nodes.size() &&
        std::ranges::none_of(node.reads,
                             [&](const auto& t) { return values.written(t, i + 1, last + 1); }) &&
        std::ranges::none_of(node.writes,
                             [&](const auto& t) { return values.used(t, i + 1, last + 1); });
    if (!can_wait) {
      last = i;
      continue;
    }
    Node& there = nodes[last];
    values.unlink(i, node);
    values.unlink(last, there);
    as_convolution(there)->group.push_back(gradient->convolution);
    there.reads.insert(there.reads.end(), node.reads.begin(), node.reads.end());
    there.writes.insert(there.writes.end(), node.writes.begin(), node.writes.end());
    node = {};
    values.link(last, there);
  }
}

/// Marks weights that no earlier node writes.
void mark_early_weights(std::vector<Node>& nodes, const Values& values) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Convolve* const found = as_convolution(nodes[i]);
    if (found && found->convolution.pass != kernels::Pass::kWeightGradient)
      found->weights_early = !values.written(nodes[i].reads[1], 0, i);
  }
}

/// Lets weight gradients wait that are read only after the program.
void let_gradients_wait(std::vector<Node>& nodes, const Values& values, LateGradients* late) {
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Convolve* const gradient = as_pass(nodes[i], kernels::Pass::kWeightGradient);
    if (!gradient || gradient->convolution.accumulate) continue;
    const at::Tensor& made = nodes[i].writes[0];
    if (made.defined() && !values.own(made) && !values.used(made, 0, i) &&
        !values.used(made, i + 1, nodes.size()))
      gradient->late = late;
  }
}

}  // namespace

void arrange(std::vector<Node>& nodes, Values& values, bool on_gpu, const ProgramOptions& options) {
  for (Node& node : nodes) {
    Convolve* const found = as_convolution(node);
    if (!found) continue;
    found->convolution.method = options.numerics.method;
    found->convolution.precision = options.numerics.precision;
    found->convolution.tuned = options.numerics.tuned;
  }
  on_gpu ? gather_weight_gradients(nodes, values) : pair_gradients(nodes);
  std::erase_if(nodes, is_erased);
  values.link(nodes);
  on_gpu ? mark_early_weights(nodes, values) : let_gradients_wait(nodes, values, options.late);
}

}  // namespace millrace::program
