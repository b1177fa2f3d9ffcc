#include "capture/stage_step.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <limits>

#include "capture/retained_bytes.h"
#include "stages/bytes.h"

namespace millrace::capture {
namespace {

void expect(const std::unique_ptr<Fence>& fence) {
  if (fence) fence->expect();
}

}  // namespace

StageStep::StageStep(stages::Stage stage, std::unique_ptr<Backend> backend, c10::Device device,
                     SampleBuffers& samples, Boundary* upstream, Boundary* downstream, int sets,
                     int stored)
    : stage_(std::move(stage)),
      dead_units_(stage_),
      backend_(std::move(backend)),
      device_(device),
      samples_(samples),
      upstream_(upstream),
      downstream_(downstream),
      slots_(samples.input.size()),
      calls_(*backend_, 4 * slots_.size() + 16),
      kept_(kept_at(slots(), 0)),
      rate_on_device_(at::ones({}, at::TensorOptions(device).dtype(at::kDouble))),
      skipped_(pinned_zeros({})),
      skipped_on_device_(seen_by(device, skipped_)),
      bytes_(kept_.size(), 0) {
  for (int set = 0; set < (sets > 0 ? sets : slots()); ++set) sets_.emplace_back(device);
  for (int set = 0; set < (stored > 0 ? stored : slots()); ++set) stored_.emplace_back(device);
  tell_rate();
  for (int slot = 0; defers() && slot < slots(); ++slot) {
    if (!downstream_) slots_[slot].shown = std::make_unique<Fence>(device);
    for (BoundaryBuffers* boundary : written()) {
      if (boundary->to_host) {
        boundary->arrived[slot] = std::make_unique<Fence>(device);
      } else {
        boundary->ready[slot] = backend_->make_event();
      }
    }
  }
}

void StageStep::finish() {
  try {
    synchronize();
  } catch (const std::exception&) {
    // A failed device has no work left.
  }
}

void StageStep::prepare() {
  // Applies the process's intra-op thread count to this thread now. By default that happens at the
  // first large operator, which a small stage never calls: its convolutions would then start a team
  // of threads, all pinned to this worker's core.
  at::init_num_threads();
}

std::vector<BoundaryBuffers*> StageStep::written() const {
  std::vector<BoundaryBuffers*> all;
  if (downstream_) all.push_back(&downstream_->activations);
  if (upstream_) all.push_back(&upstream_->gradients);
  return all;
}

std::int64_t StageStep::cut_bytes() const {
  std::int64_t bytes = 0;
  for (const BoundaryBuffers* boundary : written()) {
    for (const stages::Tensors& slot : boundary->tensors) {
      for (const at::Tensor& tensor : slot)
        bytes += tensor.defined() ? std::int64_t(tensor.nbytes()) : 0;
    }
  }
  return bytes;
}

template <class Work>
void StageStep::measure(std::optional<std::int64_t>& bytes, const Work& work) {
  const bool again = !records() && stage_.options().split && !input_gradient_bytes_;
  if (bytes && !again) {
    work();
  } else {
    bytes = retained_bytes(work);
  }
}

void StageStep::await(const BoundaryBuffers& from, int slot) const {
  if (!calls_.capturing && from.arrived[slot]) from.arrived[slot]->wait();
}

void StageStep::forward(int slot, std::int64_t version) {
  const int buffer = stage_.buffer_of(version);
  slots_[slot].buffer = buffer;
  if (upstream_) await(upstream_->activations, slot);
  expect(downstream_ ? downstream_->activations.arrived[slot] : slots_[slot].shown);
  calls_.call({Kind::forward, slot, buffer}, [this, slot, buffer] { run_forward(slot, buffer); },
              {.wait = upstream_ ? upstream_->activations.ready[slot].get() : nullptr,
               .signal = downstream_ ? downstream_->activations.ready[slot].get() : nullptr});
  if (slots_[slot].shown) {  // the copies to the host delay no other work
    calls_.call({Kind::show, slot, buffer}, [this, slot, buffer] { run_show(slot, buffer); },
                {.aside = true});
  }
}

void StageStep::compare(int slot) {
  if (!samples_.late_target || !stage_.takes_target()) return;
  calls_.call({Kind::compare, slot, slots_[slot].buffer},
              [this, slot, kept = kept_at(slot, slots_[slot].buffer)] {
                const c10::NoGradGuard no_grad;  // as in a forward
                stage_.compare(kept_[kept].forward,
                               fed(samples_.target[slot], slots_[slot].target));
                if (downstream_) return;
                const at::Tensor& loss = kept_[kept].forward.loss;
                if (records()) return show(slots_[slot].loss, loss);
                slots_[slot].loss = loss;
              });
}

void StageStep::discard(int slot) {
  if (records()) return;  // its memory stays the slot's
  const std::size_t kept = kept_at(slot, slots_[slot].buffer);
  kept_[kept].forward = {};
  keeps(kept, 0);
}

void StageStep::leave_out(int slot) {
  discard(slot);
  stage_.count_gradient();  // as recorded: the update's next gradient adds, a local one is the sum
}

void StageStep::backward_local(int slot) {
  stage_.count_local();
  calls_.call({Kind::backward_local, slot, slots_[slot].buffer},
              [this, kept = kept_at(slot, slots_[slot].buffer)] {
                stage_.backward_local(kept_[kept].forward, {.first = true, .retain = records()});
                keeps(kept, 0);  // the inputs are upstream's
              });
}

void StageStep::recompute(int slot) {
  calls_.call({Kind::recompute, slot, slots_[slot].buffer},
              [this, slot, kept = kept_at(slot, slots_[slot].buffer)] {
                Kept& of = kept_[kept];
                if (stage_.supervised())
                  of.recomputed = {.inputs = of.forward.inputs, .stored = of.forward.stored};
                const KeptIn set(sets_[std::size_t(slot) % sets_.size()]);
                measure(recompute_bytes_, [&] { stage_.recompute(for_backward(kept)); });
                keeps(kept, (stage_.supervised() ? 0 : *forward_bytes_) + *recompute_bytes_);
              });
}

void StageStep::backward(int slot, int gradient_slot) {
  call_backward(Kind::backward, slot, gradient_slot, stage_.count_gradient());
}

void StageStep::backward_input(int slot, int gradient_slot) {
  call_backward(Kind::backward_input, slot, gradient_slot, true);
}

void StageStep::call_backward(Kind kind, int slot, int gradient_slot, bool first) {
  const int buffer = slots_[slot].buffer;
  if (downstream_) await(downstream_->gradients, gradient_slot);
  if (upstream_) expect(upstream_->gradients.arrived[slot]);
  const GraphNode node{
      .wait = downstream_ ? downstream_->gradients.ready[gradient_slot].get() : nullptr,
      .signal = upstream_ ? upstream_->gradients.ready[slot].get() : nullptr};
  const auto body = [=, this](bool overwrites) {
    return [=, this] {
      run_backward(kind, slot, buffer, gradient_slot, {.first = overwrites, .retain = records()});
    };
  };
  calls_.call({kind, slot, buffer, gradient_slot, first}, body(first), node);
  // For samples without a local gradient, and after the stream's end.
  if (stage_.supervised() && records())
    calls_.record_only({kind, slot, buffer, gradient_slot, true}, body(true), node);
}

void StageStep::backward_weight(int slot) {
  const int buffer = slots_[slot].buffer;
  const stages::Adding adding{.first = stage_.count_gradient(), .retain = records()};
  calls_.call({Kind::backward_weight, slot, buffer, 0, adding.first}, [=, this] {
    const std::size_t kept = kept_at(slot, buffer);
    stage_.backward_weight(kept_[kept].forward, adding);
    keeps(kept, 0);
  });
}

void StageStep::update() {
  if (!calls_.capturing) {
    tell_rate();
    follow_rate(stage_.next_rate());
  }
  stages::Change change = stage_.advance();
  // Recording warms up by running the update: with a gradient that it rejects.
  if (calls_.capturing)
    calls_.run([this] { stage_.fill_gradients(std::numeric_limits<float>::quiet_NaN()); });
  // Its memory pool is the one after the slots'.
  const auto key_of = [this](const stages::Change& of) {
    return RecordedCalls::Key{Kind::update, slots(), of.to, of.count, /*first=*/!of.head};
  };
  const auto body_of = [this](const stages::Change& of) {
    return [this, of] { stage_.update(of, rate_on_device_, skipped_on_device_); };
  };
  calls_.call(key_of(change), body_of(change));
  if (stage_.supervised() && records()) {  // as in call_backward()
    change.head = false;
    calls_.record_only(key_of(change), body_of(change), {});
  }
  update_called_ = true;
  if (!calls_.capturing && !defers() && device_.is_cpu()) dead_units_.look(stage_.gradients());
}

void StageStep::follow_rate(double rate) {
  if (rate == rate_) return;
  if (update_called_) launch();  // that update has the previous rate
  rate_ = rate;
  calls_.run([this, rate] {
    const c10::NoGradGuard no_grad;
    rate_on_device_.fill_(rate);
  });
}

void StageStep::tell_rate() {
  lr_.store(stage_.learning_rate(), std::memory_order_relaxed);
  backed_off_.store(stage_.backed_off(), std::memory_order_relaxed);
}

void StageStep::skip_update() {
  const stages::Change change = stage_.advance();
  if (change.from == change.to) return;
  launch();
  calls_.run([this, change] { stage_.copy_weights(change.from, change.to); });
}

void StageStep::take_snapshot() {
  launch();
  calls_.run([this, newest = stage_.newest_buffer()] { stage_.take_snapshot(newest); });
}

void StageStep::roll_back() {
  skip_update();
  launch();
  stage_.back_off();
  tell_rate();
  calls_.run([this, newest = stage_.newest_buffer()] { stage_.restore_snapshot(newest); });
}

float StageStep::loss(int slot) const {
  return slots_[slot].loss.item<float>();
}

std::int64_t StageStep::skipped() const {
  return std::int64_t(skipped_.const_data_ptr<float>()[0]);
}

void StageStep::end_capture_pass() {
  for (int slot = 0; slot < slots(); ++slot) {
    if (slots_[slot].shown) slots_[slot].shown->reset(*backend_);
    for (BoundaryBuffers* boundary : written()) {
      if (boundary->arrived[slot]) boundary->arrived[slot]->reset(*backend_);
    }
  }
  calls_.run([this] { stage_.fill_gradients(0); });
  backend_->synchronize();
  stage_.reset_count();
  skipped_.zero_();
  calls_.capturing = false;
}

std::int64_t StageStep::launch() {
  update_called_ = false;
  return calls_.launch();
}

// ---- Bodies of the calls, run at once or recorded.

void StageStep::run_forward(int slot, int buffer) {
  const c10::NoGradGuard no_grad;  // for the copies; the stage enables gradients itself
  stages::Tensors inputs = upstream_
                               ? take(upstream_->activations, slot, slots_[slot].activations_in)
                               : stages::Tensors{fed(samples_.input[slot], slots_[slot].input)};
  const bool told = stage_.takes_target() && !samples_.late_target;
  const bool input_is_target = !upstream_ && samples_.target_is_input();
  at::Tensor target;
  if (told && !input_is_target) target = fed(samples_.target[slot], slots_[slot].target);
  const auto enter = [&] {
    inputs = stage_.entering(inputs);
    if (told) target = input_is_target ? inputs[0] : stage_.entering_target(target);
  };
  // What recompute() reads must outlive the set.
  const bool reads_again = stage_.options().recompute && !stage_.stores_inputs();
  if (reads_again) enter();
  Kept& of = kept_[kept_at(slot, buffer)];
  stages::Activations& kept = of.forward;
  const bool at_cut = !forward_bytes_ && downstream_ && unites(downstream_->activations);
  const stages::Tensors given = at_cut ? inputs : stages::Tensors();
  measure(forward_bytes_, [&] {
    const KeptIn set(sets_[std::size_t(slot) % sets_.size()]);
    if (!reads_again) enter();
    kept = stage_.forward(inputs, target, buffer);
  });
  if (at_cut) *forward_bytes_ -= bytes_alone(given, kept.outputs);
  measure(stored_bytes_, [&] {
    const KeptIn set(stored_[std::size_t(slot) % stored_.size()]);
    stage_.store(kept);
  });
  keeps(kept_at(slot, buffer), *forward_bytes_);
  if (downstream_) return leave(downstream_->activations, slot, kept.outputs);
  if (!records()) {
    samples_.prediction[slot] = kept.outputs[0];
    slots_[slot].loss = kept.loss;
    return;
  }
  of.prediction = kept.outputs[0].contiguous();
  of.loss = kept.loss;
  if (!slots_[slot].shown) return run_show(slot, buffer);
  KeptIn::exclude(kept.outputs[0]);  // shown beside what follows
  if (kept.loss.defined()) KeptIn::exclude(kept.loss);
}

void StageStep::run_show(int slot, int buffer) {
  const Kept& made = kept_[kept_at(slot, buffer)];
  show(samples_.prediction[slot], made.prediction);
  if (made.loss.defined()) show(slots_[slot].loss, made.loss);
  if (slots_[slot].shown) slots_[slot].shown->set(*backend_);
}

void StageStep::run_backward(Kind kind, int slot, int buffer, int gradient_slot,
                             stages::Adding adding) {
  const c10::NoGradGuard no_grad;
  const std::size_t kept = kept_at(slot, buffer);
  stages::Tensors gradients, made;
  if (downstream_)
    gradients = take(downstream_->gradients, gradient_slot, slots_[gradient_slot].gradients_in);
  if (kind == Kind::backward) {
    made = stage_.backward(for_backward(kept), gradients, adding);
    keeps(kept, 0);
  } else {
    const bool measured = input_gradient_bytes_.has_value();
    measure(input_gradient_bytes_,
            [&] { made = stage_.backward_input(kept_[kept].forward, gradients, adding); });
    // Weight gradients come with backward_weight; input gradients belong to upstream.
    for (std::size_t i = 0; !measured && i < made.size(); ++i)
      *input_gradient_bytes_ -= std::int64_t(made[i].nbytes());
    keeps(kept, *forward_bytes_ + recompute_bytes_.value_or(0) + *input_gradient_bytes_);
  }
  if (upstream_) leave(upstream_->gradients, slot, std::move(made));
}

at::Tensor StageStep::brought(const at::Tensor& from, at::Tensor& mine) {
  if (!records()) return from.to(device_);
  if (!defers()) return from;  // a core reads it in place
  if (!mine.defined()) mine = at::empty_like(from, at::TensorOptions(device_));
  backend_->copy(mine, from);
  return mine;
}

at::Tensor StageStep::fed(const at::Tensor& from, Fed& mine) {
  const at::Tensor here = brought(from, mine.sent);
  if (here.scalar_type() != at::kByte) return here;
  stages::sample_of_bytes(here, mine.floats);
  return mine.floats;
}

stages::Tensors StageStep::take(BoundaryBuffers& from, int slot, stages::Tensors& mine) {
  const stages::Tensors& sent = from.of(slot);
  mine.resize(sent.size());
  stages::Tensors here;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const at::Tensor& found = sent[i].device() == device_ ? sent[i] : brought(sent[i], mine[i]);
    // While slots are recorded, others write to their set: autograd must not count that.
    here.push_back(records() ? found.variable_data() : found);
  }
  return here;
}

void StageStep::show(at::Tensor& on_host, const at::Tensor& made) {
  const at::Tensor plain = made.contiguous();
  if (!on_host.defined()) on_host = pinned_zeros(plain.sizes());
  backend_->copy(on_host, plain);
}

void StageStep::leave(BoundaryBuffers& to, int slot, stages::Tensors made) {
  stages::Tensors& there = to.of(slot);
  if (!records() && !to.fixed) {
    there = std::move(made);
    return;
  }
  // Into the boundary's own memory: `made`'s pool may reuse its memory before the reader is done.
  there.resize(made.size());
  for (std::size_t i = 0; i < made.size(); ++i) {
    if (to.on_host) {
      show(there[i], made[i]);
    } else {
      if (!there[i].defined()) there[i] = at::empty_like(made[i]);
      if (unites(to)) KeptIn::unite(made[i], there[i]);
      there[i].copy_(made[i], /*non_blocking=*/true);
    }
  }
  if (to.arrived[slot]) to.arrived[slot]->set(*backend_);
}

void StageStep::keeps(std::size_t kept, std::int64_t bytes) {
  if (records()) {  // what is recorded stays
    kept = kept / std::size_t(stage_.options().versions) % sets_.size();
    bytes = std::max(bytes, bytes_[kept]);
  }
  all_bytes_ += bytes - bytes_[kept];
  bytes_[kept] = bytes;
  peak_bytes_ = std::max(peak_bytes_, all_bytes_);
}

}  // namespace millrace::capture
