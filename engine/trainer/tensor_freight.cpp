#include "engine/trainer/tensor_freight.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cstring>

#include "engine/trainer/tensor_payload.h"

namespace millrace::engine {
namespace {

/// A message without tensors has the wire move them.
class WirePayload final : public Payload {
 public:
  WirePayload(capture::Wire& wire, int slot) : wire_(wire), slot_(slot) {}
  Exchange::Parts parts() override { return {}; }
  void pack() override { wire_.move(slot_); }
  void unpack() override { wire_.move(slot_); }

 private:
  capture::Wire& wire_;
  const int slot_;
};

/// Of a tensor that stages or viewers may replace, unless it stays.
class OnePayload final : public Payload {
 public:
  OnePayload(at::Tensor& tensor, std::size_t bytes, bool stays)
      : tensor_(tensor), all_{tensor}, payload_(all_, {bytes}, stays) {}
  Exchange::Parts parts() override { return payload_.parts(); }
  void pack() override {
    all_.assign(1, tensor_);
    payload_.pack();
  }
  void unpack() override {
    payload_.unpack();
    tensor_ = all_.front();
  }

 private:
  at::Tensor& tensor_;
  stages::Tensors all_;
  TensorPayload payload_;
};

std::size_t bytes_of(const stages::ImageShape& shape) {
  return std::size_t(shape.channels * shape.height * shape.width) * sizeof(float);
}

}  // namespace

std::size_t TensorFreight::gradient_bytes(int stage) const {
  return sizeof(std::int64_t) + step_(stage)->stage().sums().front().nbytes();
}

capture::BoundaryBuffers& TensorFreight::way(Cargo cargo, int stage) const {
  capture::Boundary& boundary =
      *boundaries_[std::size_t(cargo == Cargo::activation ? stage : stage - 1)];
  return cargo == Cargo::activation ? boundary.activations : boundary.gradients;
}

void TensorFreight::await(Cargo cargo, int stage, int slot) {
  const auto& arrived = way(cargo, stage).arrived[std::size_t(slot)];
  if (arrived) arrived->wait();
}

bool TensorFreight::records(int stage) const {
  const capture::StageStep* const step = step_(stage);
  return step && step->records();
}

std::unique_ptr<Payload> TensorFreight::payload(Cargo cargo, int stage, int slot, bool sends) {
  const std::size_t at = std::size_t(slot);
  if (cargo == Cargo::prediction) return prediction(samples_.prediction[at], sends);
  if (cargo == Cargo::target || cargo == Cargo::sample) {
    at::Tensor& fed = cargo == Cargo::target ? samples_.target[at] : samples_.input[at];
    return std::make_unique<OnePayload>(fed, fed.nbytes(), true);
  }
  capture::BoundaryBuffers& way = this->way(cargo, stage);
  if (way.wire) return std::make_unique<WirePayload>(*way.wire, slot);
  const int boundary = cargo == Cargo::activation ? stage : stage - 1;
  const stages::Network& network = *options_.network;
  std::vector<std::size_t> bytes;
  for (const int source : network.crossing(options_.cut[std::size_t(boundary)]))
    bytes.push_back(bytes_of(network.shape(source)));
  return std::make_unique<TensorPayload>(way.tensors[at], bytes,
                                         records(boundary) || records(boundary + 1));
}

/// `made`: of a slot. Where rank 0 predicts nothing itself, it keeps what comes at one place.
std::unique_ptr<Payload> TensorFreight::prediction(at::Tensor& made, bool sends) {
  const int last = options_.stages - 1;
  const stages::ImageShape& shape = options_.network->shape(options_.network->size() - 1);
  const bool stays = records(last) || (!sends && !step_(last));
  if (stays && !made.defined()) made = at::empty({1, shape.channels, shape.height, shape.width});
  return std::make_unique<OnePayload>(made, bytes_of(shape), stays);
}

const stages::Tensors* TensorFreight::gradients_of(int from, int to) {
  const at::Tensor like = at::empty_like(replica_(to).stage().sums().front(), at::kCPU);
  return &(others_[{from, to}] = {at::zeros_like(like), at::zeros_like(like)});
}

void TensorFreight::pack_gradient(int from, std::byte* to) {
  const stages::Stage& stage = replica_(from).stage();
  const std::int64_t at = stage.sum();
  const at::Tensor sum = stage.sums()[std::size_t(at)].cpu();
  std::memcpy(to, &at, sizeof at);
  std::memcpy(to + sizeof at, sum.const_data_ptr<float>(), sum.nbytes());
}

void TensorFreight::unpack_gradient(int from, int to, const std::byte* bytes) {
  std::int64_t at = 0;
  std::memcpy(&at, bytes, sizeof at);
  const at::Tensor& sum = others_.at({from, to})[std::size_t(at)];
  std::memcpy(sum.mutable_data_ptr<float>(), bytes + sizeof at, sum.nbytes());
}

std::vector<float>& TensorFreight::gradient(int stage, std::size_t more) {
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

void TensorFreight::set_gradient(int stage, int copies) {
  const c10::NoGradGuard no_grad;
  const float* numbers = gradients_[std::size_t(stage)].data();
  for (const at::Tensor& view : step_(stage)->stage().gradients()) {
    const at::Tensor mean =
        at::from_blob(const_cast<float*>(numbers), view.sizes(), at::kFloat).div_(copies);
    at::Tensor(view).copy_(mean);
    numbers += view.numel();
  }
}

void TensorFreight::abandon() {
  for (const auto& boundary : boundaries_) {
    for (capture::BoundaryBuffers* way : {&boundary->activations, &boundary->gradients}) {
      if (way->wire) way->wire->cut();
    }
  }
}

}  // namespace millrace::engine
