#pragma once

#include <vector>

#include "tools/app/events/background.h"
#include "tools/app/events/event.h"

namespace millrace::app {

/// Detects events of the whole picture: light, a covered, moved or frozen camera, another scene.
/// Measures the share of changed cells, jumps of the gain, the noise of most cells and the
/// difference to the last picture. One thread; only the constructor allocates.
class WholePicture {
 public:
  /// `minimum`: consecutive looks that make an event. Cells whose `sensitivity` is 0 don't count;
  /// the others count equally, and all signs are `scale` times as strong.
  WholePicture(const Reduced& like, const Cells& sensitivity, int minimum, float scale,
               double memory);

  struct Found {
    float ratio = 0;  ///< the strongest sign over its limit
    bool begins = false;
    Reason reason = Reason::picture;
  };
  /// Restarts the background after a change of scene.
  Found see(const Reduced& now, Background& background, bool settled);
  bool active() const { return active_; }
  float changed_share() const { return share_; }

 private:
  static constexpr int kCalm = 25;  ///< usual looks that end an event

  Reason why(const Reduced& now, const Background& background);
  bool is_frozen(const Reduced& now);
  float jump(float gain);
  void halve(const float* grey, int height, int width, Cells& out) const;
  float match(int right, int down) const;

  const Cells counts_;
  const int minimum_;
  const float scale_;
  const double memory_;
  float share_ = 0, usual_share_ = 0, usual_difference_ = 0;
  std::vector<float> last_, gains_, moves_;  ///< of the latest looks, newest first
  float least_move_ = 1e9f;
  /// Jumps of the gain: a camera's own exposure makes them usual.
  LastingSign lit_;
  int looks_ = 0, odd_ = 0, calm_ = 0;
  bool active_ = false;
  std::vector<float> grey_now_, grey_usual_;
  Cells fine_now_, fine_usual_;  ///< at half resolution, without low frequencies
};

}  // namespace millrace::app
