#pragma once

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <utility>

#include "capture/buffers.h"
#include "engine/pipeline/feed.h"
#include "stages/bytes.h"

namespace millrace::engine {

/// A sample in a trainer's buffers. Bytes become floats when first read. May be called by stage 0's
/// worker, then the last stage's; the tokens between them order the calls.
class TrainerSample final : public Sample {
 public:
  /// `buffers` must outlive this. `context`: frames in an input.
  TrainerSample(capture::SampleBuffers& buffers, int slot, int context)
      : Sample(slot), buffers_(buffers), context_(std::size_t(context)) {}

  std::span<float> input() override { return numbers<float>(buffers_.input[slot]); }
  std::span<float> target() override { return numbers<float>(buffers_.target[slot]); }
  std::span<std::uint8_t> input_bytes() override {
    input_.made = false;
    return numbers<std::uint8_t>(buffers_.input[slot]);
  }
  std::span<std::uint8_t> target_bytes() override {
    if (buffers_.target_is_input()) return input_bytes();
    target_.made = false;
    return numbers<std::uint8_t>(buffers_.target[slot]);
  }
  std::span<const float> shown_context() override { return input_.of(buffers_.input[slot]); }
  std::span<const float> shown_input() override {
    const std::span<const float> all = shown_context();
    return all.last(all.size() / context_);
  }
  std::span<const float> shown_target() override {
    if (buffers_.target_is_input()) return shown_input();
    return target_.of(buffers_.target[slot]);
  }
  std::span<const float> prediction() override {
    at::Tensor& made = buffers_.prediction[slot];
    made = made.contiguous().cpu();
    return numbers<float>(made);
  }

 private:
  /// Empty if the elements have another type.
  template <class T>
  static std::span<T> numbers(at::Tensor& buffer) {
    if (buffer.scalar_type() != c10::CppTypeToScalarType<T>::value) return {};
    return {buffer.mutable_data_ptr<T>(), std::size_t(buffer.numel())};
  }
  /// A byte frame as floats, allocated when first read.
  struct Shown {
    at::Tensor floats;
    bool made = false;

    std::span<const float> of(at::Tensor& fed) {
      if (fed.scalar_type() != at::kByte) return numbers<float>(fed);
      if (!std::exchange(made, true)) {
        const c10::NoGradGuard no_grad;
        stages::sample_of_bytes(fed, floats);
      }
      return numbers<float>(floats);
    }
  };

  capture::SampleBuffers& buffers_;
  const std::size_t context_;
  Shown input_, target_;
};

}  // namespace millrace::engine
