#include "stages/stage.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/autograd/autograd.h>

#include <set>
#include <stdexcept>

#include "stages/layers.h"

namespace millrace::stages {
namespace {

std::vector<Parameters> buffers(const Network& network, StageRange range,
                                const at::TensorOptions& options, int versions) {
  std::vector<Parameters> all;
  for (int i = 0; i < versions; ++i)
    all.emplace_back(network.parameters(range.begin, range.end), options,
                     all.empty() ? nullptr : &all.front());
  return all;
}

/// `spec` with what the correction changes in it.
OptimizerSpec corrected(OptimizerSpec spec, const StageOptions& options) {
  const CorrectionSpec& correction = options.correction;
  if (correction.kind == "spike-compensation") spec.spike_delay = options.delay.updates;
  spec.lr = first_rate(spec, correction);
  return spec;
}

/// Adds `shift` (undefined: nothing) to `weights` while the result lives.
[[nodiscard]] auto shifted(const at::Tensor& weights, const at::Tensor& shift) {
  const c10::NoGradGuard no_grad;
  const at::Tensor kept = shift.defined() ? weights.clone() : at::Tensor();
  if (shift.defined()) weights.add_(shift);
  return c10::make_scope_exit([=] {
    const c10::NoGradGuard no_grad;
    if (kept.defined()) weights.copy_(kept);
  });
}

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

Stage::Stage(std::shared_ptr<const Network> network, StageRange range,
             const OptimizerSpec& optimizer, const at::TensorOptions& tensors, StageOptions options)
    : network_(std::move(network)),
      range_(range),
      options_(options),
      loss_(std::make_shared<Loss>(options.loss)),
      before_(network_->crossing(range.begin)),
      after_(network_->crossing(range.end)),
      learns_before_(network_->learns_before(range.begin)),
      versions_(buffers(*network_, range, tensors, options.versions)),
      spec_(corrected(optimizer, options)),
      optimizer_(spec_, parameters().flat(), parameters().places()),
      gradients_{at::zeros_like(parameters().flat())},
      gradient_views_{parameters().views_of(gradients_[0])},
      correction_(make_correction(options.correction, options.delay, parameters().flat(),
                                  parameters().count())) {
  const CorrectionSpec& correction = options.correction;
  if ((correction.kind == "local" || correction.kind == "deep-supervision") && !range.last) {
    OptimizerSpec of_head = spec_;
    of_head.lr *= correction.rate;
    head_ = std::make_unique<AuxiliaryHead>(
        network_->shape(range.end - 1).channels, network_->output().channels, correction.kernel,
        *loss_, of_head,
        network_->predicts_change() ? std::nullopt : std::optional(std::uint64_t(range.end)),
        tensors);
  }
  for (int index = range.begin; index < range.end; ++index)
    parameter_counts_.push_back(network_->module(index).parameters().size());
  segments_ = make_segments();
}

void Stage::replicate(std::vector<const Tensors*> sums) {
  replicas_ = std::move(sums);
  gradients_.push_back(at::zeros_like(gradients_[0]));
  gradient_views_.push_back(parameters().views_of(gradients_[1]));
  mean_ = at::zeros_like(gradients_[0]);
}

std::vector<Stage::Segment> Stage::make_segments() const {
  std::vector<Segment> segments;
  std::size_t used = 0;
  const int length = options_.split ? 1 : range_.end - range_.begin;
  for (int begin = range_.begin; begin < range_.end; begin += length) {
    Segment segment{.begin = begin, .end = begin + length, .first_parameter = used};
    std::set<int> uses = {begin - 1};
    std::size_t end = used;
    for (int index = begin; index < segment.end; ++index) {
      end += parameter_counts_[index - range_.begin];
      if (network_->from(index) != kNone && network_->from(index) < begin)
        uses.insert(network_->from(index));
    }
    segment.uses.assign(uses.begin(), uses.end());
    for (const int source : network_->crossing(segment.end)) {
      if (source >= begin) segment.gives.push_back(source);
    }
    for (; used < end; ++used) {
      if (!parameters().specs()[used].fixed) segment.learned.push_back(used);
    }
    segments.push_back(std::move(segment));
  }
  return segments;
}

int Stage::buffer_of(std::int64_t version) const {
  if (version == kNewest) version = newest_;
  if (version > newest_ || version + options_.versions <= newest_)
    throw std::logic_error("weight version " + std::to_string(version) + " is not kept");
  return int(version % options_.versions);
}

Activations Stage::forward(const Tensors& inputs, const at::Tensor& target, int buffer) const {
  Activations kept;
  kept.buffer = buffer;
  kept.inputs = entering(inputs);
  if (target.defined()) {
    const bool input = !inputs.empty() && target.is_same(inputs[0]);
    kept.target = input && options_.channels_last ? kept.inputs[0] : entering(target, false);
  }
  kept.local = head_ != nullptr;
  run(kept, !options_.recompute || supervised());
  return kept;
}

Tensors Stage::entering(const Tensors& inputs) const {
  Tensors all;
  for (const at::Tensor& input : inputs)
    all.push_back(entering(input.detach(), range_.first && network_->channels_last()));
  return all;
}

at::Tensor Stage::entering(const at::Tensor& tensor, bool channels_last) const {
  if (tensor.dim() != 4 || !(channels_last || options_.channels_last)) return tensor;
  return tensor.contiguous(at::MemoryFormat::ChannelsLast);
}

void Stage::store(Activations& activations) const {
  if (!stores_inputs()) return;
  activations.stored.clear();
  for (const at::Tensor& input : activations.inputs) activations.stored.push_back(quantize(input));
}

void Stage::recompute(Activations& activations) const {
  if (!activations.stored.empty()) activations.inputs.clear();
  for (const Quantized& input : activations.stored) activations.inputs.push_back(dequantize(input));
  activations.local = head_ && learns_locally();
  run(activations, true);
}

void Stage::run(Activations& a, bool keep) const {
  const auto here = shifted(versions_[a.buffer].flat(),
                            correction_ ? correction_->forward_shift() : at::Tensor());
  const c10::AutoGradMode with_grad(keep);
  const Tensors& weights = versions_[a.buffer].views();
  Tensors values(std::size_t(network_->size()) + 1);  // [module + 1], no graph
  std::vector<bool> learned(values.size());           // whether anything learns from their gradient
  for (std::size_t i = 0; i < before_.size(); ++i) values[before_[i] + 1] = a.inputs[i];
  a.graphs.clear();
  for (const Segment& segment : segments_) {
    SegmentGraph graph;
    Tensors inside(std::size_t(segment.end - segment.begin) +
                   1);  // the segment's outputs, with graph
    const auto value = [&](int source) -> at::Tensor& {
      return source >= segment.begin ? inside[source - segment.begin] : values[source + 1];
    };
    for (const int source : segment.uses) {
      // A leaf: gradients stop here and are passed on by backward_segment(). The sample needs none.
      const bool outside = source < range_.begin;
      at::Tensor leaf = values[source + 1].detach();
      leaf.set_requires_grad(keep && (outside ? passes_on() && !a.local : learned[source + 1]));
      values[source + 1] = leaf;
      graph.inputs.push_back(leaf);
    }
    std::size_t used = segment.first_parameter;
    for (int index = segment.begin; index < segment.end; ++index) {
      const std::size_t count = parameter_counts_[index - range_.begin];
      const int from = network_->from(index);
      const at::Tensor x[] = {value(index - 1), from == kNone ? at::Tensor() : value(from)};
      inside[index - segment.begin] =
          network_->module(index).forward(x, std::span(weights).subspan(used, count));
      used += count;
    }
    for (const int source : segment.gives) {
      graph.outputs.push_back(value(source));
      learned[source + 1] = value(source).requires_grad();
      values[source + 1] = value(source).detach();
    }
    if (ends_in_loss(segment, a)) {
      graph.compared = value(range_.end - 1);
      if (a.target.defined()) take_loss(a, graph);
    }
    if (keep) a.graphs.push_back(std::move(graph));
  }
  a.outputs.clear();
  for (const int source : after_) a.outputs.push_back(values[source + 1]);
}

void Stage::take_loss(Activations& a, SegmentGraph& graph) const {
  // In a network of changes the sample crosses every cut, and comes first.
  const at::Tensor base = head_ && network_->predicts_change()
                              ? latest_frame(a.inputs[0], a.target.size(1))
                              : at::Tensor();
  graph.outputs = {head_ ? head_->loss(graph.compared, a.target, base)
                         : loss_->of(graph.compared, a.target)};
  a.loss = graph.outputs[0].detach();
}

void Stage::compare(Activations& activations, const at::Tensor& target) const {
  if (activations.graphs.empty()) throw std::logic_error("a loss without a forward");
  const c10::AutoGradMode with_grad(true);
  activations.target = entering(target, false);
  take_loss(activations, activations.graphs.back());
}

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
  for (std::size_t i = 0; i < found.size(); ++i)
    take(i < own ? gradient_views_[sum()][segment.learned[i]] : head_->gradients()[i - own],
         found[i]);
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
                                      Adding adding, bool with_parameters) {
  const bool shifts = with_parameters && correction_;
  const auto here = shifted(versions_[activations.buffer].flat(),
                            shifts ? correction_->backward_shift() : at::Tensor());
  Gradients gradients = start(activations, output_gradients);
  for (std::size_t i = segments_.size(); i-- > 0;) {
    SegmentGraph& graph = activations.graphs[i];
    const Tensors found = backward_segment(segments_[i], activations, graph, gradients,
                                           with_parameters, adding.retain);
    if (with_parameters) {
      add_found(segments_[i], activations, found, adding.first);
    } else if (graph.gradients.empty() && !adding.retain) {
      graph = {};
    }
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
  Gradients gradients =
      backpropagate(activations, output_gradients, adding, /*with_parameters=*/false);
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
