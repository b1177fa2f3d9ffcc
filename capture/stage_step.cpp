#include "capture/stage_step.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <limits>
#include <stdexcept>

namespace millrace::capture {

StageStep::StageStep(stages::Stage stage, std::unique_ptr<Backend> backend, c10::Device device,
                     SampleBuffers& samples, Boundary* upstream, Boundary* downstream)
    : stage_(std::move(stage)),
      dead_units_(stage_),
      backend_(std::move(backend)),
      device_(device),
      samples_(samples),
      upstream_(upstream),
      downstream_(downstream),
      under_way_(4 * std::size_t(slots()) + 16),
      kept_(kept_at(slots(), 0)),
      made_(kept_.size()),
      buffers_(slots(), 0),
      inputs_(slots()),
      targets_(slots()),
      activations_in_(slots()),
      gradients_in_(slots()),
      losses_(slots()),
      shown_(slots()),
      rate_on_device_(at::ones({}, at::TensorOptions(device).dtype(at::kDouble))),
      skipped_on_device_(at::zeros({}, at::TensorOptions(device))),
      skipped_(pinned_zeros({})),
      bytes_(kept_.size(), 0) {
  for (int slot = 0; defers() && slot < slots(); ++slot) {
    if (!downstream_) shown_[slot] = std::make_unique<Fence>(device);
    for (BoundaryBuffers* boundary : written()) {
      if (boundary->to_host) {
        boundary->arrived[slot] = std::make_unique<Fence>(device);
      } else {
        boundary->ready[slot] = backend_->make_event();
      }
    }
  }
  called_.reserve(64);
}

StageStep::~StageStep() {
  try {
    backend_->synchronize();  // launches use what goes now
  } catch (const std::exception&) {
    // A device that has failed does nothing more.
  }
}

void StageStep::prepare() {
  // This thread takes on the process's intra-op thread count now. Left to itself that happens at
  // the first large operator, which a small stage never calls: its convolutions would then start a
  // team of threads, all pinned to this worker's core.
  at::init_num_threads();
}

std::vector<BoundaryBuffers*> StageStep::written() const {
  std::vector<BoundaryBuffers*> all;
  if (downstream_) all.push_back(&downstream_->activations);
  if (upstream_) all.push_back(&upstream_->gradients);
  return all;
}

namespace {

void expect(const std::unique_ptr<Fence>& fence) {
  if (fence) fence->expect();
}

}  // namespace

template <class Body>
void StageStep::call(const Key& key, Event* wait, Event* signal, const Body& body, bool aside) {
  if (!records()) return give(body);
  auto found = numbers_.find(key);
  if (found == numbers_.end()) {
    if (!capturing_) throw std::logic_error("a step that the capture pass did not record");
    const auto& [kind, slot, buffer, more, first] = key;
    recordings_.push_back(backend_->record(kind == Kind::update ? slots() : slot, body));
    found = numbers_.emplace(key, int(nodes_.size())).first;
    nodes_.push_back({recordings_.back().get(), wait, signal, aside});
    alone_.push_back(assembled({found->second}));
  }
  called_.push_back(found->second);
  if (!defers()) launch();
}

template <class Body>
void StageStep::give(const Body& body) {
  if (defers()) return backend_->run(body);
  backend_->run(std::ref(body));  // done when it returns, so that nothing is allocated for it
}

void StageStep::await(const BoundaryBuffers& from, int slot) const {
  if (!capturing_ && from.arrived[slot]) from.arrived[slot]->wait();
}

void StageStep::forward(int slot, std::int64_t version) {
  const int buffer = stage_.buffer_of(version);
  buffers_[slot] = buffer;
  if (upstream_) await(upstream_->activations, slot);
  expect(downstream_ ? downstream_->activations.arrived[slot] : shown_[slot]);
  call({Kind::forward, slot, buffer, 0, 0},
       upstream_ ? upstream_->activations.ready[slot].get() : nullptr,
       downstream_ ? downstream_->activations.ready[slot].get() : nullptr,
       [this, slot, buffer] { run_forward(slot, buffer); });
  if (shown_[slot]) {  // the copies to the host are in nobody's way
    const auto body = [this, slot, buffer] { run_show(slot, buffer); };
    call({Kind::show, slot, buffer, 0, 0}, nullptr, nullptr, body, /*aside=*/true);
  }
}

void StageStep::compare(int slot) {
  if (!samples_.late_target || !compares()) return;
  const int buffer = buffers_[slot];
  call({Kind::compare, slot, buffer, 0, 0}, nullptr, nullptr,
       [this, slot, buffer] { run_compare(slot, buffer); });
}

void StageStep::discard(int slot) {
  if (records()) return;  // its memory is the slot's for good
  const std::size_t kept = kept_at(slot, buffers_[slot]);
  kept_[kept] = {};
  keeps(kept, 0);
}

void StageStep::leave_out(int slot) {
  discard(slot);
  stage_.count_gradient();  // a later one of the update is then added as it was recorded
}

void StageStep::recompute(int slot) {
  const int buffer = buffers_[slot];
  call({Kind::recompute, slot, buffer, 0, 0}, nullptr, nullptr,
       [this, slot, buffer] { run_recompute(slot, buffer); });
}

void StageStep::backward(int slot, int gradient_slot) {
  call_backward(Kind::backward, &stages::Stage::backward, slot, gradient_slot,
                stage_.count_gradient());
}

void StageStep::backward_input(int slot, int gradient_slot) {
  call_backward(Kind::backward_input, &stages::Stage::backward_input, slot, gradient_slot, true);
}

void StageStep::call_backward(Kind kind, Backward part, int slot, int gradient_slot, bool first) {
  const int buffer = buffers_[slot];
  const stages::Adding adding{.first = first, .retain = records()};
  if (downstream_) await(downstream_->gradients, gradient_slot);
  if (upstream_) expect(upstream_->gradients.arrived[slot]);
  call({kind, slot, buffer, gradient_slot, first},
       downstream_ ? downstream_->gradients.ready[gradient_slot].get() : nullptr,
       upstream_ ? upstream_->gradients.ready[slot].get() : nullptr,
       [=, this] { run_backward(kind, part, slot, buffer, gradient_slot, adding); });
}

void StageStep::backward_weight(int slot) {
  const int buffer = buffers_[slot];
  const stages::Adding adding{.first = stage_.count_gradient(), .retain = records()};
  call({Kind::backward_weight, slot, buffer, 0, adding.first}, nullptr, nullptr, [=, this] {
    const std::size_t kept = kept_at(slot, buffer);
    stage_.backward_weight(kept_[kept], adding);
    if (!adding.retain) keeps(kept, 0);
  });
}

void StageStep::update() {
  follow_rate(stage_.next_rate());
  const stages::Change change = stage_.advance();
  // Recording warms up by running the update: with a gradient that it turns down.
  if (capturing_) give([this] { stage_.fill_gradients(std::numeric_limits<float>::quiet_NaN()); });
  call({Kind::update, 0, change.to, change.count, 0}, nullptr, nullptr,
       [this, change] { run_update(change); });
  update_called_ = true;
  if (!capturing_ && !defers() && device_.is_cpu()) dead_units_.look(stage_.gradients());
}

void StageStep::follow_rate(double rate) {
  if (rate == rate_ || capturing_) return;
  if (update_called_) launch();  // that one has the rate from before
  rate_ = rate;
  if (!records()) return;
  give([this, rate] {
    const c10::NoGradGuard no_grad;
    rate_on_device_.fill_(rate);
  });
}

void StageStep::skip_update() {
  const stages::Change change = stage_.advance();
  if (change.from == change.to) return;
  launch();
  give([this, change] { stage_.copy_weights(change.from, change.to); });
}

void StageStep::take_snapshot() {
  launch();
  give([this, newest = stage_.newest_buffer()] { stage_.take_snapshot(newest); });
}

void StageStep::roll_back(double factor) {
  skip_update();
  launch();
  stage_.slow_down(factor);
  give([this, newest = stage_.newest_buffer()] { stage_.restore_snapshot(newest); });
}

float StageStep::loss(int slot) const {
  return losses_[slot].item<float>();
}

std::int64_t StageStep::skipped() const {
  return std::int64_t(skipped_.const_data_ptr<float>()[0]);
}

void StageStep::end_capture_pass() {
  for (int slot = 0; slot < slots(); ++slot) {
    if (shown_[slot]) shown_[slot]->reset(*backend_);
    for (BoundaryBuffers* boundary : written()) {
      if (boundary->arrived[slot]) boundary->arrived[slot]->reset(*backend_);
    }
  }
  give([this] {
    const c10::NoGradGuard no_grad;
    stage_.fill_gradients(0);
    skipped_on_device_.zero_();
  });
  backend_->synchronize();
  stage_.reset_count();
  skipped_.zero_();
  capturing_ = false;
}

std::int64_t StageStep::launch() {
  if (capturing_ && called_.size() > 1 && !graphs_.count(called_))
    graphs_.emplace(called_, assembled(called_));
  if (!capturing_) {
    if (const auto whole = graphs_.find(called_); whole != graphs_.end()) {
      start(*whole->second);
    } else {  // a launch group cut short by the stream's end, a roll-back or the like
      for (const int number : called_) start(*alone_[number]);
    }
  }
  called_.clear();
  update_called_ = false;
  return launched_;
}

std::unique_ptr<Graph> StageStep::assembled(const std::vector<int>& numbers) {
  std::vector<Node> nodes;
  for (const int number : numbers) nodes.push_back(nodes_[number]);
  return backend_->assemble(nodes);
}

void StageStep::start(Graph& graph) {
  if (!defers()) return graph.launch();
  const auto room = std::int64_t(under_way_.size());
  if (launched_ - over_ == room) {
    backend_->synchronize();
    over(launched_);
  }
  graph.launch();
  under_way_[launched_++ % room] = &graph;
}

std::vector<OperationInfo> StageStep::operations() const {
  std::vector<OperationInfo> all;
  std::optional<Kind> seen;  // recordings of one kind differ in slots and buffers alone
  for (const auto& [key, number] : numbers_) {
    if (seen == std::get<Kind>(key)) continue;
    seen = std::get<Kind>(key);
    for (auto& operation : recordings_[number]->operations()) all.push_back(std::move(operation));
  }
  return all;
}

bool StageStep::over(std::int64_t launch) {
  while (over_ < launch) {
    Graph& next = *under_way_[over_ % std::int64_t(under_way_.size())];
    if (!next.over()) return false;
    duration_ns_ = next.duration_ns();
    ++over_;
  }
  return true;
}

}  // namespace millrace::capture
