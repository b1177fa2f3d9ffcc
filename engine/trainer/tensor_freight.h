#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "capture/buffers.h"
#include "capture/stage_step.h"
#include "engine/pipeline/rank_options.h"
#include "engine/trainer/tensor_payload.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

/// Hands over a trainer's tensors: through host memory in their own layout, which kernels depend
/// on, or by a wire, which a message without tensors triggers. Options, samples and boundaries must
/// outlive this. Thread-safety: see Freight.
class TensorFreight final : public Freight {
 public:
  /// `step`: the first local one of a stage; null: none. `replica`: a local one by its replica_id.
  /// Tensors that a recorded step reads or leaves have fixed addresses.
  TensorFreight(const TrainerOptions& options, capture::SampleBuffers& samples,
                const std::vector<std::unique_ptr<capture::Boundary>>& boundaries,
                std::function<capture::StageStep*(int stage)> step,
                std::function<const capture::StageStep&(int replica_id)> replica)
      : options_(options),
        samples_(samples),
        boundaries_(boundaries),
        step_(std::move(step)),
        replica_(std::move(replica)),
        gradients_(std::size_t(options.stages)) {}

  /// Allocates room for the gradients of `from` elsewhere that updates of `to` here add up.
  const stages::Tensors* gradients_of(int from, int to) {
    const at::Tensor like = at::empty_like(replica_(to).stage().sums().front(), at::kCPU);
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
    return std::size_t(shape.channels * shape.height * shape.width) * sizeof(float);
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
                  const stages::Stage& giver = replica_(from).stage();
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
  const std::function<const capture::StageStep&(int)> replica_;
  std::vector<std::vector<float>> gradients_;              ///< [stage]
  std::map<std::pair<int, int>, stages::Tensors> others_;  ///< gradients_of()
};

}  // namespace millrace::engine
