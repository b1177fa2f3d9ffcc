// The moving picture behind synth:shapes.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace millrace::io {

struct SceneOptions {
  int width = 64;
  int height = 64;
  int channels = 3;  ///< 3: RGB, 1: grey
  int shapes = 4;
  double speed = 1.0;  ///< pixels a frame, the same for every shape
  std::uint64_t seed = 0;
};

/// Textured shapes that move at constant velocity over a textured, still background and bounce off
/// its edges. Every frame is a function of its number, in integer arithmetic: the same options
/// give the same bytes on every machine. Reentrant.
class SynthScene {
 public:
  explicit SynthScene(const SceneOptions& options);
  ~SynthScene();
  /// Fills `pixels` with frame `number`; storage is reused.
  void draw(std::int64_t number, std::vector<std::uint8_t>& pixels) const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace millrace::io
