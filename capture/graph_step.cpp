#include "capture/graph_step.h"

#include <ATen/ATen.h>          // buffers
#include <c10/core/GradMode.h>  // NoGradGuard

#include <limits>     // what an update must turn down
#include <stdexcept>  // std::invalid_argument
#include <utility>    // exchange

#include "capture/retained_bytes.h"
#include "stages/sample_of_bytes.h"

namespace millrace::capture {

GraphStep::GraphStep(stages::Stage stage, std::unique_ptr<Backend> stream, c10::Device device,
                     SampleBuffers& samples, BoundaryBuffers* upstream, BoundaryBuffers* downstream)
    : OwningStep(std::move(stage), device, samples, upstream, downstream),
      stream_(std::move(stream)),
      under_way_(4 * std::size_t(slots()) + 16),
      kept_(slots()),
      buffers_(slots(), 0),
      inputs_(slots()),
      targets_(slots()),
      losses_(slots()),
      shown_(slots()),
      activations_in_(slots()),
      gradients_in_(slots()),
      rate_on_device_(at::ones({}, at::TensorOptions(device).dtype(at::kDouble))),
      skipped_on_device_(at::zeros({}, at::TensorOptions(device))),
      skipped_(pinned_zeros({})) {
  if (stage_.replicated()) throw std::invalid_argument("a replicated stage can't be recorded");
  for (int slot = 0; slot < slots(); ++slot) {
    if (!downstream_) shown_[slot] = std::make_unique<Stamp>(device);
    for (Crossing* crossing : crossings()) {
      crossing->ready[slot] = stream_->make_event();
      if (crossing->to_host) crossing->arrived[slot] = std::make_unique<Stamp>(device);
    }
  }
  called_.reserve(64);
}

GraphStep::~GraphStep() {
  try {
    stream_->synchronize();  // launches use what goes now
  } catch (const std::exception&) {
    // A device that has failed does nothing more.
  }
}

std::vector<Crossing*> GraphStep::crossings() const {
  std::vector<Crossing*> all;
  if (downstream_) all.push_back(&downstream_->activations);
  if (upstream_) all.push_back(&upstream_->gradients);
  return all;
}

template <class Body>
void GraphStep::call(const Key& key, Event* wait, Event* signal, const Body& body) {
  const auto found = numbers_.find(key);
  if (found != numbers_.end()) {
    called_.push_back(found->second);
    return;
  }
  if (!rehearsing_) throw std::logic_error("a step that was not rehearsed");
  const Kind kind = std::get<0>(key);
  const int pool = kind == Kind::update ? slots() : std::get<1>(key);
  recordings_.push_back(stream_->record(pool, body));
  if (kind == Kind::forward) ++forwards_recorded_;
  const int number = int(parts_.size());
  parts_.push_back({recordings_.back().get(), wait, signal});
  numbers_[key] = number;
  called_.push_back(number);
}

void GraphStep::forward(int slot, std::int64_t version) {
  const int buffer = stage_.buffer_of(version == stages::kNewest ? stage_.newest() : version);
  buffers_[slot] = buffer;
  expect(downstream_ ? downstream_->activations.arrived[slot].get() : shown_[slot].get());
  call({Kind::forward, slot, buffer, 0, 0},
       upstream_ ? upstream_->activations.ready[slot].get() : nullptr,
       downstream_ ? downstream_->activations.ready[slot].get() : nullptr,
       [this, slot, buffer] { run_forward(slot, buffer); });
}

void GraphStep::recompute(int slot) {
  const int buffer = buffers_[slot];
  call({Kind::recompute, slot, buffer, 0, 0}, nullptr, nullptr,
       [this, slot, buffer] { stage_.recompute(kept_[slot][buffer]); });
}

void GraphStep::backward(int slot, int gradient_slot) {
  call_backward(Kind::backward, &stages::Stage::backward, slot, gradient_slot, added_ == 0);
  ++added_;
}

void GraphStep::backward_input(int slot, int gradient_slot) {
  call_backward(Kind::backward_input, &stages::Stage::backward_input, slot, gradient_slot, true);
}

void GraphStep::call_backward(Kind kind, Backward part, int slot, int gradient_slot, bool first) {
  const int buffer = buffers_[slot];
  const stages::Adding adding{.first = first, .retain = true};
  if (upstream_) expect(upstream_->gradients.arrived[slot].get());
  call({kind, slot, buffer, gradient_slot, first},
       downstream_ ? downstream_->gradients.ready[gradient_slot].get() : nullptr,
       upstream_ ? upstream_->gradients.ready[slot].get() : nullptr,
       [=, this] { run_backward(part, slot, buffer, gradient_slot, adding); });
}

void GraphStep::backward_weight(int slot) {
  const int buffer = buffers_[slot];
  const stages::Adding adding{.first = added_++ == 0, .retain = true};
  call({Kind::backward_weight, slot, buffer, 0, adding.first}, nullptr, nullptr,
       [=, this] { stage_.backward_weight(kept_[slot][buffer], adding); });
}

void GraphStep::update() {
  follow_rate(stage_.next_rate());
  const int from = stage_.buffer_of(stage_.newest()), to = stage_.buffer_of(stage_.advance());
  const int count = std::exchange(added_, 0);
  // Recording warms up by running the update: with a gradient that it turns down.
  if (rehearsing_) {
    stream_->run([this] { stage_.fill_gradients(std::numeric_limits<float>::quiet_NaN()); });
  }
  call({Kind::update, 0, to, count, 0}, nullptr, nullptr,
       [this, from, to, count] { run_update(from, to, count); });
  update_called_ = true;
}

void GraphStep::skip_update() {
  added_ = 0;
  const int from = stage_.buffer_of(stage_.newest()), to = stage_.buffer_of(stage_.advance());
  if (from == to) return;
  launch();
  stream_->run([this, from, to] { stage_.copy_weights(from, to); });
}

void GraphStep::take_snapshot() {
  launch();
  const int buffer = stage_.buffer_of(stage_.newest());
  stream_->run([this, buffer] { stage_.take_snapshot(buffer); });
}

void GraphStep::roll_back(double factor) {
  skip_update();
  launch();
  stage_.slow_down(factor);
  const int buffer = stage_.buffer_of(stage_.newest());
  stream_->run([this, buffer] { stage_.restore_snapshot(buffer); });
}

void GraphStep::follow_rate(double rate) {
  if (rate == rate_ || rehearsing_) return;
  if (update_called_) launch();  // that one has the rate from before
  rate_ = rate;
  stream_->run([this, rate] {
    const c10::NoGradGuard no_grad;
    rate_on_device_.fill_(rate);
  });
}

std::int64_t GraphStep::skipped() const {
  return std::int64_t(skipped_.const_data_ptr<float>()[0]);
}

void GraphStep::end_rehearsal() {
  for (int slot = 0; slot < slots(); ++slot) {
    if (shown_[slot]) shown_[slot]->reset(*stream_);
    for (Crossing* crossing : crossings()) {
      if (crossing->arrived[slot]) crossing->arrived[slot]->reset(*stream_);
    }
  }
  stream_->run([this] {
    const c10::NoGradGuard no_grad;
    stage_.fill_gradients(0);
    skipped_on_device_.zero_();
  });
  stream_->synchronize();
  stage_.reset_count();
  skipped_.zero_();
  added_ = 0;
  rehearsing_ = false;
}

std::int64_t GraphStep::launch() {
  if (called_.empty()) return launched_;
  std::unique_ptr<Graph>& graph = graphs_[called_];
  if (!graph) {
    std::vector<Node> parts;
    for (const int number : called_) parts.push_back(parts_[number]);
    graph = stream_->assemble(parts);
  }
  called_.clear();
  update_called_ = false;
  if (rehearsing_) return launched_;
  const auto room = std::int64_t(under_way_.size());
  if (launched_ - over_ == room) {
    stream_->synchronize();
    over(launched_);
  }
  graph->launch();
  under_way_[launched_ % room] = graph.get();
  return ++launched_;
}

bool GraphStep::over(std::int64_t launch) {
  while (over_ < launch) {
    Graph& next = *under_way_[over_ % std::int64_t(under_way_.size())];
    if (!next.over()) return false;
    duration_ns_ = next.duration_ns();
    ++over_;
  }
  return true;
}

std::int64_t GraphStep::peak_activation_bytes() const {
  return forward_bytes_ * forwards_recorded_;
}

at::Tensor GraphStep::brought(const at::Tensor& from, at::Tensor& mine) {
  if (!mine.defined()) mine = at::empty_like(from, at::TensorOptions(device_));
  stream_->copy(mine, from);
  return mine;
}

at::Tensor GraphStep::fed(const at::Tensor& from, Fed& mine) {
  const at::Tensor here = brought(from, mine.sent);
  if (here.scalar_type() != at::kByte) return here;
  stages::sample_of_bytes(here, mine.floats);
  return mine.floats;
}

stages::Tensors GraphStep::take(const Crossing& crossing, int slot,
                                std::vector<stages::Tensors>& mine) {
  const stages::Tensors& sent = crossing.tensors[slot];
  mine[slot].resize(sent.size());
  stages::Tensors here;
  for (std::size_t i = 0; i < sent.size(); ++i)
    here.push_back(sent[i].device() == device_ ? sent[i] : brought(sent[i], mine[slot][i]));
  return here;
}

void GraphStep::show(at::Tensor& on_host, const at::Tensor& made) {
  const at::Tensor plain = made.contiguous();
  if (!on_host.defined()) on_host = pinned_zeros(plain.sizes());
  stream_->copy(on_host, plain);
}

void GraphStep::leave(Crossing& crossing, int slot, const stages::Tensors& made) {
  // Into memory of the crossing's own: the pool that `made` lies in may use it again while the
  // reader is not done.
  stages::Tensors& there = crossing.tensors[slot];
  if (there.size() != made.size()) there.resize(made.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (crossing.on_host) {
      show(there[i], made[i]);
    } else {
      if (!there[i].defined()) there[i] = at::empty_like(made[i]);
      there[i].copy_(made[i], /*non_blocking=*/true);
    }
  }
  if (crossing.arrived[slot]) crossing.arrived[slot]->set(*stream_);
}

void GraphStep::run_forward(int slot, int buffer) {
  const c10::NoGradGuard no_grad;  // of the copies; the stage switches it on for itself
  const stages::Tensors inputs = upstream_
                                     ? take(upstream_->activations, slot, activations_in_)
                                     : stages::Tensors{fed(samples_.input[slot], inputs_[slot])};
  const at::Tensor target = !compares()             ? at::Tensor()
                            : target_is_its_input() ? inputs[0]
                                                    : fed(samples_.target[slot], targets_[slot]);
  stages::Activations& kept = kept_[slot][buffer];
  forward_bytes_ = retained_bytes([&] { kept = stage_.forward_at(inputs, target, buffer); });
  if (downstream_) {
    leave(downstream_->activations, slot, kept.outputs);
  } else {
    show(samples_.prediction[slot], kept.outputs[0]);
    show(losses_[slot], kept.loss);
    shown_[slot]->set(*stream_);
  }
}

void GraphStep::run_backward(Backward part, int slot, int buffer, int gradient_slot,
                             stages::Adding adding) {
  const c10::NoGradGuard no_grad;
  stages::Tensors gradients;
  if (downstream_) gradients = take(downstream_->gradients, gradient_slot, gradients_in_);
  const stages::Tensors made = (stage_.*part)(kept_[slot][buffer], gradients, adding);
  if (upstream_) leave(upstream_->gradients, slot, made);
}

void GraphStep::run_update(int from, int to, int count) {
  const c10::NoGradGuard no_grad;
  stage_.guarded_update(from, to, count, rate_on_device_, skipped_on_device_);
  stream_->copy(skipped_, skipped_on_device_);
}

}  // namespace millrace::capture
