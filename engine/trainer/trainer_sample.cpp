#include "engine/trainer/trainer_sample.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "stages/sample_of_bytes.h"

namespace millrace::engine {
namespace {

/// Empty if the numbers are of another type.
template <class T>
std::span<T> numbers(at::Tensor& buffer) {
  if (buffer.scalar_type() != c10::CppTypeToScalarType<T>::value) return {};
  return {buffer.mutable_data_ptr<T>(), std::size_t(buffer.numel())};
}

std::span<const float> floats(const at::Tensor& tensor) {
  return {tensor.const_data_ptr<float>(), std::size_t(tensor.numel())};
}

}  // namespace

std::span<float> TrainerSample::input() {
  return numbers<float>(buffers_.input[slot]);
}
std::span<float> TrainerSample::target() {
  return numbers<float>(buffers_.target[slot]);
}

std::span<std::uint8_t> TrainerSample::input_bytes() {
  input_.made = false;
  return numbers<std::uint8_t>(buffers_.input[slot]);
}
std::span<std::uint8_t> TrainerSample::target_bytes() {
  if (buffers_.target_is_input()) return input_bytes();
  target_.made = false;
  return numbers<std::uint8_t>(buffers_.target[slot]);
}

std::span<const float> TrainerSample::shown_context() {
  return input_.of(buffers_.input[slot]);
}
std::span<const float> TrainerSample::shown_input() {
  const std::span<const float> all = shown_context();
  return all.last(all.size() / context_);
}
std::span<const float> TrainerSample::shown_target() {
  if (buffers_.target_is_input()) return shown_input();
  return target_.of(buffers_.target[slot]);
}

std::span<const float> TrainerSample::prediction() {
  at::Tensor& made = buffers_.prediction[slot];
  made = made.contiguous().cpu();
  return floats(made);
}

std::span<const float> TrainerSample::Shown::of(const at::Tensor& fed) {
  if (fed.scalar_type() != at::kByte) return engine::floats(fed);
  if (!made) {
    const c10::NoGradGuard no_grad;
    stages::sample_of_bytes(fed, floats);
    made = true;
  }
  return engine::floats(floats);
}

}  // namespace millrace::engine
