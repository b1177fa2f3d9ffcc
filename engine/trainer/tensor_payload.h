#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "engine/pipeline/exchange.h"

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

  Exchange::Parts parts() {
    Exchange::Parts all{std::as_writable_bytes(std::span(notes_))};
    for (Part& part : parts_)
      all.emplace_back(part.place ? part.place : part.copy.data(), part.bytes);
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
      if (part.place) {
        take_in_place(tensors_[count], part, notes_[count]);
        continue;
      }
      tensors_.resize(std::max(tensors_.size(), count + 1));
      tensors_[count] = came(part.copy.data(), part, notes_[count]);
    }
    if (count < parts_.size() && !parts_[count].place) tensors_.resize(count);
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
    std::size_t bytes = 0;
    std::byte* place = nullptr;     ///< the tensor's memory; null: `copy`
    std::vector<std::byte> copy{};  ///< empty if it stays
  };

  static std::byte* data_of(const at::Tensor& tensor) {
    return static_cast<std::byte*>(const_cast<void*>(tensor.const_data_ptr()));
  }
  static void require_in_place(const at::Tensor& tensor, const Part& part) {
    if (!tensor.defined() || data_of(tensor) != part.place)
      throw std::logic_error("a tensor that was to stay where it is has moved");
  }
  static void pack(const at::Tensor& tensor, Part& part, Note& note) {
    if (part.place) require_in_place(tensor, part);
    note.dims = kUndefined;
    if (!tensor.defined()) return;
    const at::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
    note.dims = dense.dim();
    if (note.dims > std::int64_t(kMostDims)) throw std::logic_error("a tensor of five dimensions");
    std::copy_n(dense.sizes().begin(), note.dims, note.sizes.begin());
    std::copy_n(dense.strides().begin(), note.dims, note.strides.begin());
    if (part.place) return;
    if (dense.nbytes() != part.bytes) throw std::logic_error("a tensor of another size");
    std::memcpy(part.copy.data(), data_of(dense), part.bytes);
  }
  /// Moves the data if its layout differs from the tensor's.
  static void take_in_place(at::Tensor& tensor, const Part& part, const Note& note) {
    require_in_place(tensor, part);
    if (note.dims < 0) throw std::logic_error("a tensor that was to come is not there");
    if (tensor.strides() != note.layout()) tensor.copy_(came(part.place, part, note));
  }
  static at::Tensor came(const std::byte* from, const Part& part, const Note& note) {
    if (note.dims < 0) return {};
    const at::Tensor tensor = at::empty_strided(note.shape(), note.layout(), at::kFloat);
    std::memcpy(data_of(tensor), from, part.bytes);
    return tensor;
  }

  std::vector<at::Tensor>& tensors_;
  std::vector<Note> notes_;
  std::vector<Part> parts_;
};

}  // namespace millrace::engine
