#include "engine/trainer/tensor_payload.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace millrace::engine {
namespace {

std::byte* data_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(const_cast<void*>(tensor.const_data_ptr()));
}

}  // namespace

TensorPayload::TensorPayload(std::vector<at::Tensor>& tensors,
                             const std::vector<std::size_t>& bytes, bool stay)
    : tensors_(tensors), notes_(bytes.size()) {
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const at::Tensor* const tensor = i < tensors.size() ? &tensors[i] : nullptr;
    Part& part = parts_.emplace_back(Part{.bytes = bytes[i]});
    if (stay && tensor && tensor->defined() && tensor->is_non_overlapping_and_dense() &&
        tensor->nbytes() == bytes[i]) {
      part.place = data_of(*tensor);
    } else {
      part.copy.resize(bytes[i]);
    }
  }
}

Exchange::Parts TensorPayload::parts() {
  Exchange::Parts all{std::as_writable_bytes(std::span(notes_))};
  for (Part& part : parts_)
    all.emplace_back(part.place ? part.place : part.copy.data(), part.bytes);
  return all;
}

void TensorPayload::require_in_place(const at::Tensor& tensor, const Part& part) {
  if (!tensor.defined() || data_of(tensor) != part.place)
    throw std::logic_error("a tensor that was to stay where it is has moved");
}

void TensorPayload::pack() {
  if (tensors_.size() > parts_.size()) throw std::logic_error("a message has no room for a tensor");
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    Note& note = notes_[i] = {};
    if (i >= tensors_.size()) continue;
    if (part.place) require_in_place(tensors_[i], part);
    note.dims = kUndefined;
    if (!tensors_[i].defined()) continue;
    const at::Tensor dense =
        tensors_[i].is_non_overlapping_and_dense() ? tensors_[i] : tensors_[i].contiguous();
    note.dims = dense.dim();
    if (note.dims > std::int64_t(kMostDims)) throw std::logic_error("a tensor of five dimensions");
    std::copy_n(dense.sizes().begin(), note.dims, note.sizes.begin());
    std::copy_n(dense.strides().begin(), note.dims, note.strides.begin());
    if (part.place) continue;
    if (dense.nbytes() != part.bytes) throw std::logic_error("a tensor of another size");
    std::memcpy(part.copy.data(), data_of(dense), part.bytes);
  }
}

void TensorPayload::unpack() {
  std::size_t count = 0;
  for (; count < notes_.size() && notes_[count].dims != kNone; ++count) {
    const Part& part = parts_[count];
    if (part.place) {
      take_in_place(tensors_[count], part, notes_[count]);
      continue;
    }
    tensors_.resize(std::max(tensors_.size(), count + 1));
    tensors_[count] = came(part.copy.data(), part, notes_[count]);
  }
  if (count < parts_.size() && !parts_[count].place) tensors_.resize(count);
}

/// In another layout than the tensor here has, the numbers are moved.
void TensorPayload::take_in_place(at::Tensor& tensor, const Part& part, const Note& note) {
  require_in_place(tensor, part);
  if (note.dims < 0) throw std::logic_error("a tensor that was to come is not there");
  if (tensor.strides() != note.layout()) tensor.copy_(came(part.place, part, note));
}

at::Tensor TensorPayload::came(const std::byte* from, const Part& part, const Note& note) {
  if (note.dims < 0) return {};
  const at::Tensor tensor = at::empty_strided(note.shape(), note.layout(), at::kFloat);
  std::memcpy(data_of(tensor), from, part.bytes);
  return tensor;
}

}  // namespace millrace::engine
