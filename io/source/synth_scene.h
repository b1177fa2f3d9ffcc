#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace millrace::io {

struct SceneOptions {
  int width = 64;
  int height = 64;
  int channels = 3;  ///< 3: RGB, 1: grey
  int shapes = 4;
  double speed = 1.0;  ///< per frame, the same for every shape
  std::uint64_t seed = 0;
};

/// Fills `pixels` with frame `number`; storage is reused. Reentrant.
using SynthScene = std::function<void(std::int64_t number, std::vector<std::uint8_t>& pixels)>;

/// Textured shapes that move at constant velocity over a textured, still background and bounce off
/// its edges. Integer functions of the frame's number: same options, same bytes on any machine.
SynthScene synth_scene(const SceneOptions& options);

}  // namespace millrace::io
