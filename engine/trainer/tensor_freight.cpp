#include "engine/trainer/tensor_freight.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>  // NoGradGuard

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>

namespace millrace::engine {
namespace {

constexpr std::size_t kMostDims = 4;

/// Before each tensor's numbers.
struct Note {
  std::int64_t dims = -1;  ///< -1: there is no tensor
  std::array<std::int64_t, kMostDims> sizes{}, strides{};

  at::IntArrayRef shape() const { return {sizes.data(), std::size_t(dims)}; }
  at::IntArrayRef layout() const { return {strides.data(), std::size_t(dims)}; }
};

void pack_tensors(const std::vector<at::Tensor>& tensors, std::size_t room, std::byte* to) {
  const std::byte* const end = to + room;
  const auto put = [&](const void* from, std::size_t bytes) {
    if (bytes > std::size_t(end - to)) throw std::logic_error("a message has no room for a tensor");
    std::memcpy(to, from, bytes);
    to += bytes;
  };
  const std::int64_t count = std::int64_t(tensors.size());
  put(&count, sizeof count);
  for (const at::Tensor& made : tensors) {
    Note note;
    if (!made.defined()) {
      put(&note, sizeof note);
      continue;
    }
    const at::Tensor dense = made.is_non_overlapping_and_dense() ? made : made.contiguous();
    note.dims = dense.dim();
    if (note.dims > std::int64_t(kMostDims)) throw std::logic_error("a tensor of five dimensions");
    std::copy_n(dense.sizes().begin(), note.dims, note.sizes.begin());
    std::copy_n(dense.strides().begin(), note.dims, note.strides.begin());
    put(&note, sizeof note);
    put(dense.const_data_ptr<float>(), dense.nbytes());
  }
}

void unpack_tensors(std::vector<at::Tensor>& tensors, bool fixed, const std::byte* from) {
  const auto take = [&](void* to, std::size_t bytes) {
    std::memcpy(to, from, bytes);
    from += bytes;
  };
  std::int64_t count = 0;
  take(&count, sizeof count);
  tensors.resize(std::size_t(count));
  for (at::Tensor& tensor : tensors) {
    Note note;
    take(&note, sizeof note);
    if (note.dims < 0) {
      tensor = at::Tensor();
      continue;
    }
    if (fixed && tensor.defined() && tensor.sizes() == note.shape() &&
        tensor.strides() != note.layout()) {
      const at::Tensor came = at::empty_strided(note.shape(), note.layout(), at::kFloat);
      take(came.mutable_data_ptr<float>(), came.nbytes());
      tensor.copy_(came);
      continue;
    }
    if (!fixed || !tensor.defined() || tensor.sizes() != note.shape())
      tensor = at::empty_strided(note.shape(), note.layout(), at::kFloat);
    take(tensor.mutable_data_ptr<float>(), tensor.nbytes());
  }
}

}  // namespace

std::size_t TensorFreight::bytes(Cargo cargo, int stage) const {
  const stages::Network& network = *options_.network;
  const auto size = [&](const stages::ImageShape& shape) {
    return std::size_t(shape.channels * shape.height * shape.width) * sizeof(float);
  };
  if (cargo == Cargo::release) return 0;
  if (cargo == Cargo::target) return samples_.target[0].nbytes();
  if (cargo == Cargo::sample) return samples_.input[0].nbytes();
  if (cargo == Cargo::meeting)
    return sizeof(std::int64_t) + step_(stage).stage().sums().front().nbytes();
  if (cargo == Cargo::prediction) return size(network.shape(network.size() - 1));
  if (way(cargo, stage).wire) return 0;
  std::size_t all = sizeof(std::int64_t);
  const int boundary = cargo == Cargo::activation ? stage : stage - 1;
  for (const int source : network.crossing(options_.cut[std::size_t(boundary)])) {
    all += sizeof(Note) + size(source == stages::kSample ? options_.sample : network.shape(source));
  }
  return all;
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

/// What the feed writes of the sample in `slot`; null for what stages make.
at::Tensor* TensorFreight::fed(Cargo cargo, int slot) {
  if (cargo == Cargo::target) return &samples_.target[std::size_t(slot)];
  if (cargo == Cargo::sample) return &samples_.input[std::size_t(slot)];
  return nullptr;
}

void TensorFreight::pack(Cargo cargo, int stage, int slot, std::byte* to) {
  if (cargo == Cargo::release) return;
  if (const at::Tensor* const given = fed(cargo, slot)) {
    std::memcpy(to, given->const_data_ptr(), given->nbytes());
  } else if (cargo == Cargo::prediction) {
    const at::Tensor made = samples_.prediction[std::size_t(slot)].contiguous();
    std::memcpy(to, made.const_data_ptr<float>(), made.nbytes());
  } else if (capture::Wire* const wire = way(cargo, stage).wire.get()) {
    wire->move(slot);
  } else {
    pack_tensors(way(cargo, stage).tensors[std::size_t(slot)], bytes(cargo, stage), to);
  }
}

void TensorFreight::unpack(Cargo cargo, int stage, int slot, const std::byte* from) {
  if (cargo == Cargo::release) return;
  if (at::Tensor* const given = fed(cargo, slot)) {
    std::memcpy(given->mutable_data_ptr(), from, given->nbytes());
  } else if (cargo == Cargo::prediction) {
    at::Tensor& shown = samples_.prediction[std::size_t(slot)];
    if (!shown.defined()) {
      const stages::ImageShape& shape = options_.network->shape(options_.network->size() - 1);
      shown = at::empty({1, shape.channels, shape.height, shape.width});
    }
    std::memcpy(shown.mutable_data_ptr<float>(), from, shown.nbytes());
  } else if (capture::Wire* const wire = way(cargo, stage).wire.get()) {
    wire->move(slot);
  } else {
    const int reader = cargo == Cargo::activation ? stage + 1 : stage - 1;
    unpack_tensors(way(cargo, stage).tensors[std::size_t(slot)], step_(reader).records(), from);
  }
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
  const stages::Tensors& views = step_(stage).stage().gradients();
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
  for (const at::Tensor& view : step_(stage).stage().gradients()) {
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
