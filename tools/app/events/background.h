#pragma once

#include <cstdint>
#include <vector>

#include "tools/app/events/cells.h"

namespace millrace::app {

/// A picture in levels 0..255, planar, at most 160 x 120 pixels: each averages a square of the
/// sample's pixels; cut to whole cells.
struct Reduced {
  /// For pictures [channels][height][width]; the first three channels are used.
  Reduced(int channels, int height, int width);
  /// `picture`: float32 in 0..1. Non-finite values count as 0.
  void take(const float* picture);

  std::size_t pixels() const { return std::size_t(height * width); }
  float level(int channel, std::size_t pixel) const {
    return levels[std::size_t(channel) * pixels() + pixel];
  }

  int channels, factor, cell;  ///< pixels of the picture a side; pixels of this a cell's side
  int rows, columns;           ///< cells
  int height, width;
  const int full_height, full_width;  ///< the picture's size
  std::vector<float> levels;
};

/// Follows each pixel's usual level: fast enough for daylight and clouds, which change all pixels
/// slowly; too slow for passing objects, since a pixel moves by a tenth of a level at most. An
/// object that stays becomes background in about a minute. Compares without the gain that all cells
/// share. One thread; only the constructor allocates.
class Background {
 public:
  explicit Background(const Reduced& like);

  /// Compares `now` with the background, then follows it.
  void see(const Reduced& now);
  /// Takes the next picture as the background, after a change of scene.
  void restart() { age_ = 0; }
  int age() const { return age_; }  ///< looks since the start

  /// Light of the picture over that of the background.
  float gain() const { return gain_; }
  /// Mean squared difference of each cell.
  const Cells& difference() const { return difference_; }
  /// 1 for each cell that differs by more than its noise, else 0.
  const Cells& changed() const { return changed_; }
  /// 1 for each cell that differs from the mean of the last few looks, else 0.
  const Cells& moving() const { return moving_; }
  float typical_difference() const { return typical_; }  ///< the median of all cells
  /// Whether a pixel of the latest picture differs.
  bool differs(const Reduced& now, std::size_t pixel) const;
  const std::vector<float>& levels() const { return levels_; }
  /// Factor that scales levels to a common light.
  float exposure() const { return exposure_; }

 private:
  void compare(const Reduced& now);
  void see_motion(const Reduced& now);
  void follow(const Reduced& now);

  std::vector<float> levels_, recent_;  ///< recent_: the mean of the last few looks
  Cells difference_, noise_, changed_, moving_, light_, usual_light_;
  std::vector<float> scratch_;
  int age_ = 0;
  std::int64_t seen_ = 0;
  float gain_ = 1, typical_ = 0, exposure_ = 1;
};

}  // namespace millrace::app
