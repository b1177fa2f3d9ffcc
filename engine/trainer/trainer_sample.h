// A sample whose numbers lie in a trainer's buffers.
#pragma once

#include <ATen/core/Tensor.h>

#include "capture/buffers.h"
#include "engine/pipeline/sample.h"

namespace millrace::engine {

/// Bytes become floats the first time somebody looks at a sample. Whoever holds the sample may
/// call: first stage 0's worker, then the last stage's; the tokens between them order the calls.
class TrainerSample final : public Sample {
 public:
  /// `buffers` outlives this. `context`: frames in an input.
  TrainerSample(capture::SampleBuffers& buffers, int slot, int context)
      : Sample(slot), buffers_(buffers), context_(std::size_t(context)) {}

  std::span<float> input() override;
  std::span<std::uint8_t> input_bytes() override;
  std::span<float> target() override;
  std::span<std::uint8_t> target_bytes() override;
  std::span<const float> shown_context() override;
  std::span<const float> shown_input() override;
  std::span<const float> shown_target() override;
  std::span<const float> prediction() override;

 private:
  /// A frame that came as bytes, as floats: memory is taken at the first look.
  struct Shown {
    at::Tensor floats;
    bool made = false;
    std::span<const float> of(const at::Tensor& fed);
  };

  capture::SampleBuffers& buffers_;
  const std::size_t context_;
  Shown input_, target_;
};

}  // namespace millrace::engine
