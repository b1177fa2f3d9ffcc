#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "capture/buffers.h"
#include "capture/stage_step.h"
#include "engine/pipeline/rank_options.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

/// A message's tensors, of up to four dimensions, each in its own layout, which kernels depend on;
/// those that do not stay are float32. Not thread-safe.
class TensorPayload {
 public:
  /// `tensors`: a slot's, at most as many as `bytes`, in host memory when packed and unpacked; must
  /// outlive this. `bytes`: of each. `stay`: existing ones are read and written in place, as the
  /// message's parts; others are copied, and allocated on arrival.
  TensorPayload(std::vector<at::Tensor>& tensors, const std::vector<std::size_t>& bytes, bool stay)
      : tensors_(tensors), notes_(bytes.size()) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const at::Tensor tensor = i < tensors.size() ? tensors[i] : at::Tensor();
      Part& part = parts_.emplace_back();
      part.stays = stay && tensor.defined() && tensor.is_non_overlapping_and_dense() &&
                   tensor.nbytes() == bytes[i];
      if (!part.stays) part.copy.resize(bytes[i]);
      part.data = {part.stays ? data_of(tensor) : part.copy.data(), bytes[i]};
    }
  }

  Exchange::Parts parts() {
    Exchange::Parts all{std::as_writable_bytes(std::span(notes_))};
    for (const Part& part : parts_) all.push_back(part.data);
    return all;
  }

  void pack() {
    if (tensors_.size() > parts_.size())
      throw std::logic_error("a message has no room for a tensor");
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      notes_[i] = {};
      if (i < tensors_.size()) pack(tensors_[i], parts_[i], notes_[i]);
    }
  }

  void unpack() {
    std::size_t count = 0;
    for (; count < notes_.size() && notes_[count].dims != kNone; ++count) {
      const Part& part = parts_[count];
      if (part.stays) {
        take_in_place(tensors_[count], part, notes_[count]);
        continue;
      }
      tensors_.resize(std::max(tensors_.size(), count + 1));
      tensors_[count] = came(part, notes_[count]);
    }
    if (count < parts_.size() && !parts_[count].stays) tensors_.resize(count);
  }

 private:
  static constexpr std::size_t kMostDims = 4;
  static constexpr std::int64_t kUndefined = -1, kNone = -2;
  /// A tensor's header, before all data.
  struct Note {
    std::int64_t dims = kNone;  ///< or kUndefined
    std::array<std::int64_t, kMostDims> sizes{}, strides{};

    at::IntArrayRef shape() const { return {sizes.data(), std::size_t(dims)}; }
    at::IntArrayRef layout() const { return {strides.data(), std::size_t(dims)}; }
  };
  /// A tensor's data in the message.
  struct Part {
    bool stays = false;
    std::vector<std::byte> copy{};  ///< empty if it stays
    std::span<std::byte> data{};    ///< the tensor's memory, or `copy`
  };

  static std::byte* data_of(const at::Tensor& tensor) {
    return static_cast<std::byte*>(const_cast<void*>(tensor.const_data_ptr()));
  }
  static void require_in_place(const at::Tensor& tensor, const Part& part) {
    if (!tensor.defined() || data_of(tensor) != part.data.data())
      throw std::logic_error("a tensor that was to stay where it is has moved");
  }
  static void pack(const at::Tensor& tensor, Part& part, Note& note) {
    if (part.stays) require_in_place(tensor, part);
    note.dims = kUndefined;
    if (!tensor.defined()) return;
    const at::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
    note.dims = dense.dim();
    if (note.dims > std::int64_t(kMostDims)) throw std::logic_error("a tensor of five dimensions");
    std::copy_n(dense.sizes().begin(), note.dims, note.sizes.begin());
    std::copy_n(dense.strides().begin(), note.dims, note.strides.begin());
    if (part.stays) return;
    if (dense.nbytes() != part.data.size()) throw std::logic_error("a tensor of another size");
    std::memcpy(part.data.data(), data_of(dense), part.data.size());
  }
  /// Moves the data if its layout differs from the tensor's.
  static void take_in_place(at::Tensor& tensor, const Part& part, const Note& note) {
    require_in_place(tensor, part);
    if (note.dims < 0) throw std::logic_error("a tensor that was to come is not there");
    if (tensor.strides() != note.layout()) tensor.copy_(came(part, note));
  }
  static at::Tensor came(const Part& part, const Note& note) {
    if (note.dims < 0) return {};
    const at::Tensor tensor = at::empty_strided(note.shape(), note.layout(), at::kFloat);
    std::memcpy(data_of(tensor), part.data.data(), part.data.size());
    return tensor;
  }

  std::vector<at::Tensor>& tensors_;
  std::vector<Note> notes_;
  std::vector<Part> parts_;
};

/// Hands over a trainer's tensors: through host memory in their own layout, which kernels depend
/// on, or by a wire, which a message without tensors triggers. Options, samples, boundaries and
/// steps must outlive this. Thread-safety: see Freight.
class TensorFreight final : public Freight {
 public:
  /// `step`: the first local one of a stage; null: none. `steps`: by replica_id. Tensors that a
  /// recorded step reads or leaves have fixed addresses.
  TensorFreight(const TrainerOptions& options, capture::SampleBuffers& samples,
                const std::vector<std::unique_ptr<capture::Boundary>>& boundaries,
                std::function<capture::StageStep*(int stage)> step,
                const std::vector<std::unique_ptr<capture::StageStep>>& steps)
      : options_(options),
        samples_(samples),
        boundaries_(boundaries),
        step_(std::move(step)),
        steps_(steps),
        gradients_(std::size_t(options.stages)) {}

  /// Allocates room for the gradients of `from` elsewhere that updates of `to` here add up.
  const stages::Tensors* gradients_of(int from, int to) {
    const at::Tensor like =
        at::empty_like(steps_[std::size_t(to)]->stage().sums().front(), at::kCPU);
    return &(others_[{from, to}] = {at::zeros_like(like), at::zeros_like(like)});
  }

  Payload payload(Cargo cargo, int stage, int slot, bool sends) override {
    if (cargo == Cargo::meeting) return meeting(stage);
    const std::size_t at = std::size_t(slot);
    if (cargo == Cargo::prediction) return prediction(samples_.prediction[at], sends);
    if (cargo == Cargo::target || cargo == Cargo::sample) {
      at::Tensor& fed = cargo == Cargo::target ? samples_.target[at] : samples_.input[at];
      return of_one(fed, fed.nbytes(), true);
    }
    capture::BoundaryBuffers& buffers = this->buffers(cargo, stage);
    if (buffers.wire) {  // the wire moves the tensors; the message has none
      const auto move = [&buffers, slot](int, int) { buffers.wire->move(slot); };
      return {.pack = move, .unpack = move};
    }
    const int boundary = cargo == Cargo::activation ? stage : stage - 1;
    const stages::Network& network = *options_.network;
    std::vector<std::size_t> bytes;
    for (const int source : network.crossing(options_.cut[std::size_t(boundary)]))
      bytes.push_back(bytes_of(network.shape(source)));
    const bool stay = records(boundary) || records(boundary + 1);
    const auto all = std::make_shared<TensorPayload>(buffers.of(slot), bytes, stay);
    return {.parts = all->parts(),
            .pack = [all](int, int) { all->pack(); },
            .unpack = [all](int, int) { all->unpack(); }};
  }
  bool target_is_input() const override { return samples_.target_is_input(); }
  void await(Cargo cargo, int stage, int slot) override {
    const auto& arrived = buffers(cargo, stage).arrived[std::size_t(slot)];
    if (arrived) arrived->wait();
  }
  std::vector<float>& gradient(int stage, std::size_t more) override {
    step_(stage)->synchronize();  // a step may leave gradients to its update
    const stages::Tensors& views = step_(stage)->stage().gradients();
    std::vector<float>& all = gradients_[std::size_t(stage)];
    all.clear();
    for (const at::Tensor& view : views) {
      const at::Tensor dense = view.contiguous();
      const float* const numbers = dense.const_data_ptr<float>();
      all.insert(all.end(), numbers, numbers + dense.numel());
    }
    all.resize(all.size() + more);
    return all;
  }
  void set_gradient(int stage, int copies) override {
    const c10::NoGradGuard no_grad;
    const float* numbers = gradients_[std::size_t(stage)].data();
    for (const at::Tensor& view : step_(stage)->stage().gradients()) {
      const at::Tensor mean =
          at::from_blob(const_cast<float*>(numbers), view.sizes(), at::kFloat).div_(copies);
      at::Tensor(view).copy_(mean);
      numbers += view.numel();
    }
  }
  void abandon() override {
    for (const auto& boundary : boundaries_) {
      for (capture::BoundaryBuffers* buffers : {&boundary->activations, &boundary->gradients}) {
        if (buffers->wire) buffers->wire->cut();
      }
    }
  }

 private:
  /// For a tensor that others may replace, unless it `stays`. It must outlive the payload.
  static Payload of_one(at::Tensor& tensor, std::size_t bytes, bool stays) {
    const auto list = std::make_shared<stages::Tensors>(1, tensor);
    const auto all = std::make_shared<TensorPayload>(*list, std::vector{bytes}, stays);
    return {.parts = all->parts(),
            .pack =
                [list, all, &tensor](int, int) {
                  list->assign(1, tensor);
                  all->pack();
                },
            .unpack =
                [list, all, &tensor](int, int) {
                  all->unpack();
                  tensor = list->front();
                }};
  }
  static std::size_t bytes_of(const stages::ImageShape& shape) {
    return std::size_t(shape.elements()) * sizeof(float);
  }
  capture::BoundaryBuffers& buffers(Cargo cargo, int stage) const {
    capture::Boundary& boundary =
        *boundaries_[std::size_t(cargo == Cargo::activation ? stage : stage - 1)];
    return cargo == Cargo::activation ? boundary.activations : boundary.gradients;
  }
  bool records(int stage) const {
    const capture::StageStep* const step = step_(stage);
    return step && step->records();
  }
  /// `made`: a slot's. If rank 0 predicts nothing itself, predictions arrive at a fixed address.
  Payload prediction(at::Tensor& made, bool sends) {
    const int last = options_.stages - 1;
    const stages::ImageShape& shape = options_.network->output();
    const bool stays = records(last) || (!sends && !step_(last));
    if (stays && !made.defined()) made = at::empty(shape.sizes());
    return of_one(made, bytes_of(shape), stays);
  }
  Payload meeting(int stage) {
    struct Sum {
      std::int64_t at = 0;
      std::vector<float> numbers{};
    };
    const auto made = std::make_shared<Sum>();
    made->numbers.resize(std::size_t(step_(stage)->stage().sums().front().numel()));
    const std::size_t bytes = made->numbers.size() * sizeof(float);
    return {.parts = {std::as_writable_bytes(std::span(&made->at, 1)),
                      std::as_writable_bytes(std::span(made->numbers))},
            .pack =
                [=, this](int from, int) {
                  const stages::Stage& giver = steps_[std::size_t(from)]->stage();
                  made->at = giver.sum();
                  const at::Tensor sum = giver.sums()[std::size_t(made->at)].cpu();
                  std::memcpy(made->numbers.data(), sum.const_data_ptr<float>(), bytes);
                },
            .unpack =
                [=, this](int from, int to) {
                  const at::Tensor& sum = others_.at({from, to})[std::size_t(made->at)];
                  std::memcpy(sum.mutable_data_ptr<float>(), made->numbers.data(), bytes);
                }};
  }

  const TrainerOptions& options_;
  capture::SampleBuffers& samples_;
  const std::vector<std::unique_ptr<capture::Boundary>>& boundaries_;
  const std::function<capture::StageStep*(int)> step_;
  const std::vector<std::unique_ptr<capture::StageStep>>& steps_;
  std::vector<std::vector<float>> gradients_;              ///< [stage]
  std::map<std::pair<int, int>, stages::Tensors> others_;  ///< gradients_of()
};

}  // namespace millrace::engine
