#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/pipeline/feed.h"

namespace millrace::engine {

/// Tells a change of scene from other causes of a loss jump. Measures the error of a trivial
/// predictor, the mean of the latest 200 frames, on each sample's input and target: it jumps when
/// the scene changes and does not depend on the weights. Estimated from at most 1,024 elements
/// spread over a frame. Thread-bound; allocates at the first sample only.
class SceneWatch {
 public:
  /// Sets `sample.info.scene`. `target`: whether it is already known. A replayed sample is compared
  /// but does not change the mean.
  void see(Sample& sample, bool target);
  /// The same for other samples. `target` may be empty.
  SceneErrors see(std::span<const float> input, std::span<const float> target);

 private:
  class MeanFrame {
   public:
    template <class Element>
    float compare(std::span<const Element> frame, float scale, bool learns);

   private:
    std::vector<float> mean_;
    std::int64_t seen_ = 0;
    float last_ = 0;
  };

  MeanFrame input_, target_;
};

}  // namespace millrace::engine
