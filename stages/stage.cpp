#include "stages/stage.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

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
  if (correction.kind == "deep-supervision") spec.lr *= correction.step;
  return spec;
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
  const std::string& kind = options.correction.kind;
  if ((kind == "local" || kind == "deep-supervision") && !range.last)
    head_ = make_head(spec_, tensors);
  for (int index = range.begin; index < range.end; ++index)
    parameter_counts_.push_back(network_->module(index).parameters().size());
  segments_ = make_segments();
}

std::unique_ptr<AuxiliaryHead> Stage::make_head(OptimizerSpec optimizer,
                                                const at::TensorOptions& tensors) const {
  const ImageShape &mine = network_->shape(range_.end - 1), &target = network_->output();
  optimizer.lr *= options_.correction.rate;
  return std::make_unique<AuxiliaryHead>(
      mine.channels, target.channels, options_.correction.kernel, *loss_, optimizer,
      network_->predicts_change() ? std::nullopt : std::optional(std::uint64_t(range_.end)),
      tensors);
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
    for (int index = begin; index < segment.end; ++index) {
      segment.parameters += parameter_counts_[index - range_.begin];
      if (network_->from(index) != kNone && network_->from(index) < begin)
        uses.insert(network_->from(index));
    }
    segment.uses.assign(uses.begin(), uses.end());
    for (const int source : network_->crossing(segment.end)) {
      if (source >= begin) segment.gives.push_back(source);
    }
    for (; used < segment.first_parameter + segment.parameters; ++used) {
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
  const Shifted shifted(versions_[a.buffer].flat(),
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

}  // namespace millrace::stages
