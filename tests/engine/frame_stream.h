// An invented stream of frames, given to a trainer, and the samples that result.
#pragma once

#include <algorithm>

#include "tests/engine/trained.h"

namespace millrace::engine {

/// Frame n, uint8 [H,W,C], equal at every call.
inline at::Tensor frame_at(std::int64_t n, const stages::ImageShape& shape) {
  const auto generator = at::detail::createCPUGenerator(std::uint64_t(2000 + n));
  return at::randint(256, {shape.height, shape.width, shape.channels}, generator, at::kByte);
}

/// `frame` as floats, [1,C,H,W].
inline at::Tensor floats_of(const at::Tensor& frame) {
  const std::int64_t channels = frame.size(2), plane = frame.size(0) * frame.size(1);
  at::Tensor sample = at::empty({1, channels, frame.size(0), frame.size(1)});
  for (std::int64_t i = 0; i < frame.numel(); ++i) {
    sample.data_ptr<float>()[i % channels * plane + i / channels] =
        float(frame.const_data_ptr<std::uint8_t>()[i]) / 255.0f;
  }
  return sample;
}

/// Sample n: its target is frame n or, unless the target is the input, frame n + 1.
inline SampleFunction samples_of(const TrainerOptions& options) {
  return [shape = options.sample, same = options.target_is_input](std::int64_t n) {
    const at::Tensor input = floats_of(frame_at(n, shape));
    return std::pair(input, same ? input : floats_of(frame_at(n + 1, shape)));
  };
}

/// Gives the first `samples` samples of samples_of(), as bytes where the trainer takes bytes.
class FrameStream final : public CountedFeed {
 public:
  FrameStream(const TrainerOptions& options, std::int64_t samples)
      : CountedFeed(samples), shape_(options.sample), target_is_input_(options.target_is_input) {}

 private:
  void fill(std::int64_t n, Sample& sample) override {
    give(n, sample.input_bytes(), sample.input());
    if (!target_is_input_) give(n + 1, sample.target_bytes(), sample.target());
  }
  void give(std::int64_t n, std::span<std::uint8_t> bytes, std::span<float> floats) const {
    EXPECT_NE(bytes.empty(), floats.empty());
    const at::Tensor frame = frame_at(n, shape_), sample = floats_of(frame);
    std::copy_n(frame.const_data_ptr<std::uint8_t>(), bytes.size(), bytes.begin());
    std::copy_n(sample.const_data_ptr<float>(), floats.size(), floats.begin());
  }

  stages::ImageShape shape_;
  bool target_is_input_;
};

/// Collects losses, and compares the trainer's pictures with the samples.
class ShownLog final : public Observer {
 public:
  explicit ShownLog(const TrainerOptions& options) : sample_(samples_of(options)) {}
  void predicted(Sample& sample, float loss) override {
    const auto [input, target] = sample_(sample.info.frame);
    expect_shown(sample.shown_input(), input);
    expect_shown(sample.shown_target(), target);
    losses.push_back(loss);
  }
  std::vector<float> losses;

 private:
  static void expect_shown(std::span<const float> shown, const at::Tensor& sample) {
    const std::span floats(sample.const_data_ptr<float>(), std::size_t(sample.numel()));
    EXPECT_TRUE(std::ranges::equal(floats, shown));
  }
  SampleFunction sample_;
};

inline Trained by_frames(const TrainerOptions& options, std::int64_t samples) {
  Trainer trainer(options);
  FrameStream feed(options, samples);
  ShownLog log(options);
  trainer.run(feed, &log);
  EXPECT_EQ(trainer.recording().on, options.capture != Capture::eager);
  return {trainer.state(), log.losses};
}

}  // namespace millrace::engine
