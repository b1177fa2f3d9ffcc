#pragma once

#include <algorithm>
#include <cmath>
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
               double memory)
      : counts_(sensitivity),
        minimum_(minimum),
        scale_(scale),
        memory_(memory),
        last_(like.levels),
        gains_(kGains, 1.0f),
        moves_(std::size_t(std::max(minimum + 1, kFreeze)), 255.0f),
        lit_looks_(std::min(minimum, kMostLit)),
        lit_(lit_looks_, {1, 0.5, 1.5f}),
        grey_now_(like.pixels()),
        grey_usual_(like.pixels()),
        fine_now_(std::max(1, like.height / 2), std::max(1, like.width / 2)),
        fine_usual_(fine_now_) {}

  struct Found {
    float ratio = 0;  ///< the strongest sign over its limit
    bool begins = false;
    Reason reason = Reason::picture;
    int looks = 0;          ///< since it began
    bool restarts = false;  ///< the background starts anew
    bool returns = false;   ///< the scene before the last event is back
  };
  /// Restarts the background after a change of scene.
  Found see(const Reduced& now, Background& background, bool settled) {
    share_ = share_of(background.changed());
    const float many = scale_ * share_ / limit_of_share(),
                noisy = looks_ < kNoiseKnown
                            ? 0
                            : scale_ * std::sqrt(background.typical_difference() /
                                                 (kNoisier * usual_difference_ + kNoise)),
                jumps =
                    scale_ * lit_.see(jump(background.light()), !active_, looks_, settled, memory_),
                lit = background.young() ? 0 : jumps;
    const bool frozen = is_frozen(now), odd = many > 1 || noisy > 1;
    // What moves into the picture is judged once it is there.
    const bool rests = moves_.front() < background.typical_difference() / 8;
    Found found{.ratio = std::max({many, noisy, lit, frozen ? 1.0f : 0.0f})};
    odd_ = odd ? odd_ + 1 : 0;
    if (lit >= 1)
      lit_for_ = lit_looks_;
    else if (lit_for_ > 0)
      lit_for_ = std::abs(std::log(background.light())) > kJump ? lit_for_ + 1 : 0;
    ++looks_;
    if (settled && !active_) {
      const bool light = lit_for_ == minimum_;
      found.begins = (odd_ >= minimum_ && (rests || odd_ >= kMostComing)) || light || frozen;
      if (odd_ == minimum_) early_ = many > 1 ? why(now, background) : Reason::picture;
      found.returns = found.begins && background.returns(now);
      if (found.returns)
        resume(found);
      else if (found.begins)
        begin(now, background, many > 1, light, found);
    } else if (settled) {
      calm_ = found.ratio > 1 || frozen ? 0 : calm_ + 1;
      active_ = calm_ < kCalm;
      another_ = another_ || many > 1;
      // When a camera that turned is at rest, the background still has pictures of the turn.
      const bool rested = many > 1 && background.age() > 50;
      found.returns = rested && background.returns(now);
      found.restarts = rested || (!active_ && another_);
      if (found.returns) resume(found);
    }
    if (found.restarts) background.restart();
    if (found.begins || (found.restarts && !active_)) forget_share();
    if (active_ || (looks_ > 60 && !(odd && settled))) {
      learn_share(settled);
      const float fade = float(1 - 1 / memory_);
      usual_difference_ = std::max(usual_difference_ * fade, background.typical_difference());
    }
    return found;
  }
  bool active() const { return active_; }
  float changed_share() const { return share_; }

 private:
  static constexpr int kCalm = 25;       ///< usual looks that end an event
  static constexpr float kMany = 0.3f;   ///< share of the cells that usually don't change
  static constexpr float kJump = 0.08f;  ///< of the gain's logarithm within three looks
  static constexpr int kMostLit = 3;     ///< looks in which a gain jumps
  static constexpr std::size_t kGains = kMostLit + 1;
  static constexpr float kNoisier = 2, kNoise = 4;  ///< times the most so far, plus levels squared
  /// Looks until noise and stillness are known: keyframes of some encoders are as rare.
  static constexpr int kNoiseKnown = 300;
  static constexpr int kMostComing = 10;  ///< odd looks that make an event, if nothing rests
  static constexpr int kFreeze = 30;      ///< looks without a move: a clock may tick once a second
  static constexpr int kKeyFrames = 3;    ///< within so many looks, at most
  static constexpr float kStill = 0.1f;   ///< levels squared from look to look
  static constexpr float kStiller = 4;    ///< times below the least so far
  static constexpr float kUniform = 0.25f;                         ///< of the usual gradients
  static constexpr int kBlock = 4;                                 ///< pixels a side
  static constexpr int kFarRight = 12, kFarDown = 8, kCoarse = 4;  ///< half pixels

  float share_of(const Cells& cells) const {
    float changed = 0, all = 0;
    for (std::size_t i = 0; i < counts_.size(); ++i) {
      const float counts = counts_[i] > 0 ? 1.0f : 0.0f;
      changed += counts * cells[i];
      all += counts;
    }
    return all > 0 ? changed / all : 0;
  }
  void begin(const Reduced& now, const Background& background, bool many, bool lit, Found& found) {
    found.reason = many || lit ? why(now, background) : odd_ > 0 ? Reason::picture : Reason::frozen;
    // By now it may have turned too far to match.
    if (odd_ > minimum_ && early_ == Reason::moved && found.reason != Reason::covered)
      found.reason = early_;
    if (lit) lit_.add();
    // Large things that pass become usual; another turn of the camera doesn't.
    if (found.reason == Reason::picture && many) usual_share_ = limit_of_share();
    found.looks = found.reason == Reason::frozen ? int(moves_.size())
                  : lit                          ? std::max(odd_, lit_for_)
                                                 : odd_;
    active_ = true;
    calm_ = 0;
    another_ = many || found.reason == Reason::covered;
    found.restarts = another_;
  }
  /// The scene is the one before the last event: a hand is gone from the lens. No event.
  void resume(Found& found) {
    found.begins = found.restarts = false;
    active_ = true;
    calm_ = odd_ = 0;
    another_ = false;
    std::ranges::fill(gains_, 1.0f);
    forget_share();
  }
  float limit_of_share() const { return usual_share_ + kMany * (1 - usual_share_); }
  /// A share becomes usual once it has passed, or after a while: one that grows as the camera
  /// begins to turn must not raise its own limit, nor the turn that of the next.
  void learn_share(bool settled) {
    constexpr int kWhile = 100;  // looks
    usual_share_ *= float(1 - 1 / memory_);
    risen_ = std::max(risen_, std::min(share_, 0.9f));
    if (settled && (active_ || share_ > risen_ / 2) && ++rising_ < kWhile) return;
    usual_share_ = std::max(usual_share_, risen_);
    forget_share();
  }
  void forget_share() {
    risen_ = 0;
    rising_ = 0;
  }
  /// Between blocks' means: in the dark noise has gradients, too, from pixel to pixel.
  static float gradients(const std::vector<float>& grey, int height, int width) {
    Cells means(height / kBlock, width / kBlock);
    for (int y = 0; y < means.rows * kBlock; ++y)
      for (int x = 0; x < means.columns * kBlock; ++x)
        means.at(y / kBlock, x / kBlock) += grey[std::size_t(y * width + x)];
    float sum = 0;
    for (int y = 0; y < means.rows; ++y) {
      for (int x = 0; x < means.columns; ++x) {
        if (x > 0) sum += std::abs(means.at(y, x) - means.at(y, x - 1));
        if (y > 0) sum += std::abs(means.at(y, x) - means.at(y - 1, x));
      }
    }
    return sum;
  }
  Reason why(const Reduced& now, const Background& background) {
    const auto grey = [&](const std::vector<float>& levels, std::vector<float>& out) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = 0;
        for (int c = 0; c < now.channels; ++c) out[i] += levels[std::size_t(c) * now.pixels() + i];
        out[i] /= float(now.channels);
      }
    };
    grey(now.levels, grey_now_);
    grey(background.levels(), grey_usual_);
    halve(grey_now_.data(), now.height, now.width, fine_now_);
    halve(grey_usual_.data(), now.height, now.width, fine_usual_);
    const float still = match(0, 0);
    if (still < 0.5f && gradients(grey_now_, now.height, now.width) <
                            kUniform * gradients(grey_usual_, now.height, now.width))
      return Reason::covered;
    float best = 0.4f;
    for (int down = -std::min(kFarDown, fine_now_.rows / 2); down <= kFarDown; ++down)
      for (int right = -kFarRight; right <= kFarRight; ++right)
        best = std::max(best, match(right, down));
    if (best > 0.4f && best > still + 0.1f) return Reason::moved;
    const float light = std::max(std::abs(std::log(gains_.front() / gains_.back())),
                                 std::abs(std::log(background.gain())));
    return still > 0.5f && light > kJump ? Reason::light : Reason::picture;
  }
  bool is_frozen(const Reduced& now) {
    float sum = 0;
    for (std::size_t i = 0; i < last_.size(); ++i) {
      const float off = now.levels[i] - last_[i];
      sum += off * off;
    }
    last_ = now.levels;
    std::shift_right(moves_.begin(), moves_.end(), 1);
    moves_.front() = sum / float(last_.size());
    const float most = *std::ranges::max_element(moves_);
    // A stream that was equally still before may only be quiet. A key frame moves a frozen picture.
    const auto moved = std::ranges::count_if(moves_, [](float move) { return move >= kStill; });
    frozen_ = frozen_ ? moved <= kKeyFrames
                      : looks_ > kNoiseKnown && least_move_ >= kStill && most < kStill &&
                            most < least_move_ / kStiller;
    if (looks_ > 10 && !frozen_)
      least_move_ = std::clamp(most, kStill / kStiller, float(least_move_ * (1 + 1 / memory_)));
    return frozen_;
  }
  float jump(float gain) {
    const float before = gains_.back();
    std::shift_right(gains_.begin(), gains_.end(), 1);
    gains_.front() = gain;
    return looks_ < int(kGains) ? 0 : std::abs(std::log(gain / before)) / kJump;
  }
  /// `grey` at half its size, minus the mean of 9 x 9 around each pixel.
  void halve(const float* grey, int height, int width, Cells& out) const {
    Cells half(out.rows, out.columns);
    for (int y = 0; y < out.rows; ++y) {
      for (int x = 0; x < out.columns; ++x) {
        const float* const at = grey + 2 * y * width + 2 * x;
        const int down = 2 * y + 1 < height ? width : 0, right = 2 * x + 1 < width ? 1 : 0;
        half.at(y, x) = (at[0] + at[right] + at[down] + at[down + right]) / 4;
      }
    }
    for (int y = 0; y < out.rows; ++y) {
      for (int x = 0; x < out.columns; ++x) {
        float sum = 0;
        int count = 0;
        for (int v = std::max(0, y - kCoarse); v <= std::min(out.rows - 1, y + kCoarse); ++v) {
          for (int u = std::max(0, x - kCoarse); u <= std::min(out.columns - 1, x + kCoarse); ++u) {
            sum += half.at(v, u);
            ++count;
          }
        }
        out.at(y, x) = half.at(y, x) - sum / float(count);
      }
    }
  }
  /// Correlation of the picture with the shifted background, -1 to 1.
  float match(int right, int down) const {
    float both = 0, one = 1, other = 1;
    for (int y = std::max(0, down); y < fine_now_.rows + std::min(0, down); ++y) {
      for (int x = std::max(0, right); x < fine_now_.columns + std::min(0, right); ++x) {
        const float a = fine_now_.at(y, x), b = fine_usual_.at(y - down, x - right);
        both += a * b;
        one += a * a;
        other += b * b;
      }
    }
    return both / std::sqrt(one * other);
  }

  const Cells counts_;
  const int minimum_;
  const float scale_;
  const double memory_;
  float share_ = 0, usual_share_ = 0, usual_difference_ = 0;
  std::vector<float> last_, gains_, moves_;  ///< of the latest looks, newest first
  float least_move_ = 1e9f;  ///< the least of a time that ends about memory_ looks ago
  bool frozen_ = false;
  const int lit_looks_;
  /// Jumps of the gain: a camera's own exposure makes them usual.
  LastingSign lit_;
  int looks_ = 0, odd_ = 0, lit_for_ = 0, calm_ = 0;
  int rising_ = 0;   ///< looks since risen_ was 0
  float risen_ = 0;  ///< the largest share that isn't usual yet
  bool active_ = false;
  Reason early_ =
      Reason::picture;    ///< of the event that may begin, when it was odd for long enough
  bool another_ = false;  ///< the event is another picture, not another light
  std::vector<float> grey_now_, grey_usual_;
  Cells fine_now_, fine_usual_;  ///< at half resolution, without low frequencies
};

}  // namespace millrace::app
