#include "engine/pipeline/scene_watch.h"

#include <algorithm>
#include <cmath>

namespace millrace::engine {
namespace {

constexpr std::size_t kElements = 1024;
constexpr std::int64_t kMemory = 200;  // frames

}  // namespace

template <class Element>
float SceneWatch::MeanFrame::compare(std::span<const Element> frame, float scale, bool learns) {
  if (frame.empty()) return 0;
  const std::size_t stride = std::max<std::size_t>(1, frame.size() / kElements);
  const std::size_t count = std::min(kElements, frame.size() / stride);
  if (mean_.empty()) mean_.resize(count);
  float sum = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const float off = scale * float(frame[i * stride]) - mean_[i];
    sum += off * off;
  }
  if (!std::isfinite(sum)) return last_;  // a broken frame says nothing of the scene
  const float error = seen_ == 0 ? 0 : sum / float(count);
  if (!learns) return error;
  const float share = 1.0f / float(std::min(++seen_, kMemory));
  for (std::size_t i = 0; i < count; ++i)
    mean_[i] += share * (scale * float(frame[i * stride]) - mean_[i]);
  return last_ = error;
}

void SceneWatch::see(Sample& sample, bool target) {
  constexpr float kByte = 1.0f / 255.0f;
  const bool learns = !sample.info.replayed;
  const auto error = [&](MeanFrame& mean, std::span<float> floats, std::span<std::uint8_t> bytes) {
    return floats.empty() ? mean.compare(std::span<const std::uint8_t>(bytes), kByte, learns)
                          : mean.compare(std::span<const float>(floats), 1.0f, learns);
  };
  SceneErrors& scene = sample.info.scene;
  scene.input = error(input_, sample.input(), sample.input_bytes());
  const bool apart = !sample.memory()[1].empty();
  scene.target = target && apart ? error(target_, sample.target(), sample.target_bytes()) : 0;
}

SceneErrors SceneWatch::see(std::span<const float> input, std::span<const float> target) {
  return {input_.compare(input, 1.0f, true), target_.compare(target, 1.0f, true)};
}

}  // namespace millrace::engine
