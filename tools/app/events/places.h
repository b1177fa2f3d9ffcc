#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "tools/app/events/background.h"

namespace millrace::app {

struct CellBox {
  int left = 0, top = 0, right = 0, bottom = 0;  ///< right and bottom lie outside
};

/// The colours that have passed through each region of a picture, or its neighbours. Similar
/// colours count as one. A colour is new for `kNew` looks after its first sight, so that the object
/// that brings it stays new for as long.
class SeenColours {
 public:
  explicit SeenColours(const Reduced& like)
      : rows_(like.height / kRegion + 3),
        columns_(like.width / kRegion + 3),
        first_(index(rows_, 0, 0, 0, 0)) {}
  /// Whether the pixel's colour is new there; records it. `exposure` scales to a common light.
  bool is_new(const Reduced& now, std::size_t pixel, float exposure, std::int64_t look) {
    const float red = exposure * now.level(0, pixel),
                green = exposure * now.level(now.channels / 2, pixel),
                blue = exposure * now.level(now.channels - 1, pixel);
    const auto step = [](float value, int steps) {
      return 1 + std::clamp(int(value), 0, steps - 1);
    };
    const float middle = kTones / 2, light = (red + green + blue) / 3;
    // Without colours, tones are finer steps of light.
    const int u = now.channels == 1 ? step(light / (256 / kTones), kTones)
                                    : step((red - green) / kToneStep + middle, kTones),
              v = step((blue - (red + green) / 2) / kToneStep + middle, kTones),
              l = step(light / kLightStep, kLights);
    const int row = int(pixel) / now.width / kRegion + 1,
              column = int(pixel) % now.width / kRegion + 1;
    const std::int32_t first = first_[index(row, column, l, u, v)];
    if (first == 0 || first == look) note(row, column, l, u, v, std::int32_t(look));
    return first == 0 || look - first < kNew;
  }

  static constexpr int kNew = 60;  ///< looks

 private:
  static constexpr int kRegion = 16;  ///< pixels
  static constexpr int kLights = 6, kTones = 32;
  static constexpr float kToneStep = 12, kLightStep = 43;

  std::size_t index(int row, int column, int light, int u, int v) const {
    const std::size_t region = std::size_t(row * columns_ + column);
    return ((region * (kLights + 2) + std::size_t(light)) * (kTones + 2) + std::size_t(u)) *
               (kTones + 2) +
           std::size_t(v);
  }
  void note(int row, int column, int light, int u, int v, std::int32_t look) {
    for (int r = row - 1; r <= row + 1; ++r) {
      for (int c = column - 1; c <= column + 1; ++c) {
        for (int l = light - 1; l <= light + 1; ++l) {
          for (int i = u - 1; i <= u + 1; ++i) {
            std::int32_t* const first = &first_[index(r, c, l, i, v - 1)];
            for (int j = 0; j < 3; ++j) first[j] = first[j] == 0 ? look : first[j];
          }
        }
      }
    }
  }

  const int rows_, columns_;
  std::vector<std::int32_t> first_;  ///< look of the first sight; 0: none; with a border
};

/// Raises events at a place. Scores each cell in two ways: for how many looks something has stood
/// still there that the background doesn't show, over the longest time before; and for how many
/// looks something new has been moving about or staying: of a colour that is new there, or where
/// nothing ever was. One thread; only the constructor allocates.
class Places {
 public:
  /// `sensitivity`: of each cell; 0: no event there. `minimum`: consecutive looks that make an
  /// event; at least 3.
  Places(const Reduced& like, Cells sensitivity, int minimum, double memory)
      : sensitivity_(std::move(sensitivity)),
        minimum_(float(std::max(minimum, 3))),
        memory_(memory),
        colours_(like),
        stay_record_(4, 1, 3),
        record_of_new_(minimum_, 3, 2) {
    for (Cells* const cells :
         {&stay_, &longest_, &stay_peak_, &score_peak_, &score_, &held_, &fresh_, &fresh_near_,
          &wander_, &carried_, &entered_, &visited_, &pardoned_, &before_, &near_, &part_})
      *cells = Cells(like.rows, like.columns);
    visited_.fill(-2 * kForgets);  // never
    blob_.reserve(stay_.size());
  }

  struct Found {
    float ratio = 0;  ///< the highest score over its limit; an event from 1 on
    CellBox box;      ///< of the event
    int looks = 0;    ///< since it began, at most `minimum`
  };
  /// Before `settled`, nothing is found, and anything new becomes usual at once; before
  /// `stays_settled`, so does what stays. `calm`: the whole picture is usual: an event may begin.
  Found see(const Reduced& now, const Background& background, bool settled, bool stays_settled,
            bool calm) {
    see_what_moves(background);
    Found found;
    ++looks_;
    see_what_is_new(now, background, settled, calm);
    see_stays(background, stays_settled);
    hold_what_was_raised(background.changed());
    record_of_new_.fade(double(looks_), 3 * memory_);
    stay_record_.fade(double(looks_), memory_);
    if (!calm) return found;
    const Cells& changed = background.changed();
    part_ = fresh_;
    if (find(wander_, carried_, record_of_new_.limit(), settled, found)) {
      record_of_new_.add(record_of_new_.limit(), true);
      return found;
    }
    if (!stays_settled) return found;
    const float limit = stay_record_.limit();
    for (std::size_t i = 0; i < part_.size(); ++i)
      part_[i] = changed[i] > 0 && stay_[i] >= minimum_ && score_[i] > limit / 3 ? 1.0f : 0.0f;
    if (find(score_, held_, limit, true, found)) stay_record_.add(limit, true);
    return found;
  }
  /// Whether the object that raised an event is still there.
  bool active() const { return active_; }
  /// Whether something moves.
  bool moves() const { return moves_; }
  /// Suppresses events at all places for a while, after the whole picture changed.
  void hold_all() {
    held_.fill(kHold);
    carried_.fill(kCarry);
    for (float& visited : visited_.values)  // what was seen meanwhile says nothing about places
      if (visited >= 0) visited = std::max(visited, float(rests_));
  }
  /// Makes usual, for good, what is in the box now or next.
  void accept(const CellBox& box) {
    near_.fill(0);
    for (int y = box.top; y < box.bottom; ++y)
      for (int x = box.left; x < box.right; ++x) longest_.at(y, x) = near_.at(y, x) = kEver;
    widen(near_);
    for (std::size_t i = 0; i < near_.size(); ++i) {
      visited_[i] = std::max(visited_[i], near_[i]);
      if (near_[i] > 0) pardoned_[i] = SeenColours::kNew;
    }
  }

 private:
  /// Looks of absence after which a place, or an object moving on from it, may raise another event.
  static constexpr float kHold = 20, kCarry = 50;
  static constexpr float kHeadStart = 2;  ///< looks added to the longest stay
  /// New pixels in 3 x 3 cells; the second where next to nothing changes: above noise of sd 25.
  static constexpr float kFewestNew = 16, kFewestInCalm = 5;
  static constexpr int kBlind = 60;          ///< looks at the start whose colours aren't recorded
  static constexpr int kFirstRecords = 150;  ///< looks until stays are compared with one another
  static constexpr float kLeave = 2, kMove = 1;  ///< looks of a stay undone by absence, by motion
  static constexpr float kMinute = 600;          ///< looks
  static constexpr int kNear = 3;                ///< radius in cells
  static constexpr float kForgets = 450;         ///< looks at rest
  static constexpr float kEver = 1e9f;           ///< looks

  void see_what_moves(const Background& background) {
    constexpr float kTogether = 2;  // cells; one alone is noise
    for (std::size_t i = 0; i < part_.size(); ++i)
      part_[i] = background.changed()[i] * background.moving()[i];
    sum_nearby(part_, near_);
    moves_ = std::ranges::any_of(near_.values, [](float cells) { return cells >= kTogether; });
  }
  void see_what_is_new(const Reduced& now, const Background& background, bool settled, bool calm) {
    near_.fill(0);
    if (looks_ > kBlind && calm) {
      rests_ += moves_ ? 0 : 1;
      part_ = background.changed();
      busy_ += (std::accumulate(part_.values.begin(), part_.values.end(), 0.0f) - busy_) / kMinute;
      widen(part_);
      for (std::size_t i = 0; i < part_.size(); ++i)
        if (part_[i] > 0) visit(i);
      for (std::size_t pixel = 0; pixel < now.pixels(); ++pixel) {
        const int row = int(pixel) / now.width / now.cell,
                  column = int(pixel) % now.width / now.cell;
        if (background.changed().at(row, column) <= 0 || !background.differs(now, pixel)) continue;
        const bool colour = colours_.is_new(now, pixel, background.exposure(), looks_),
                   ground = float(looks_) - entered_.at(row, column) < SeenColours::kNew;
        if ((colour || ground) && pardoned_.at(row, column) <= 0) near_.at(row, column) += 1;
      }
    }
    sum_nearby(near_, fresh_near_);
    before_ = wander_;
    largest_nearby(before_, wander_);
    const float fewest =
        std::clamp(kFewestNew * busy_, kFewestInCalm, kFewestNew) * float(now.cell * now.cell) / 16;
    for (std::size_t i = 0; i < wander_.size(); ++i) {
      fresh_[i] = near_[i] > 0 && fresh_near_[i] >= fewest && sensitivity_[i] > 0 ? 1.0f : 0.0f;
      wander_[i] =
          fresh_[i] > 0 ? wander_[i] + sensitivity_[i] : std::max(0.0f, before_[i] - kLeave);
    }
    largest_nearby(wander_, before_);
    for (std::size_t i = 0; i < wander_.size(); ++i) {
      const bool moved_on = wander_[i] < before_[i];  // a moving object may still prove to be new
      if (fresh_[i] <= 0 && wander_[i] > 0 && !moved_on && carried_[i] <= 0)
        record_of_new_.add(wander_[i] + kLeave, settled);
    }
  }
  /// Something is at `cell`: new, and so is its stay, if nothing was for `kForgets` looks at rest.
  void visit(std::size_t cell) {
    const auto rests = float(rests_);
    if (rests - visited_[cell] > kForgets) {
      entered_[cell] = float(looks_);
      longest_[cell] = 0;
    }
    visited_[cell] = std::max(visited_[cell], rests);
    pardoned_[cell] -= 1;
  }
  void see_stays(const Background& background, bool settled) {
    largest_nearby(stay_, before_);
    largest_nearby(longest_, near_);
    for (std::size_t i = 0; i < stay_.size(); ++i) {
      const bool stands = background.changed()[i] > 0 && background.moving()[i] <= 0;
      if (stands)
        stay_[i] += 1;
      else
        stay_[i] = std::max(0.0f, stay_[i] - (background.changed()[i] > 0 ? kMove : kLeave));
      if (stay_[i] > 0) {
        score_[i] = sensitivity_[i] * stay_[i] / (near_[i] + kHeadStart);
        stay_peak_[i] = std::max(stay_peak_[i], stay_[i]);
        score_peak_[i] = std::max(score_peak_[i], score_[i]);
        continue;
      }
      // The edge of a standing object says nothing about how long objects stay, unless it was told.
      const bool whole = stay_peak_[i] > before_[i];
      if (whole || held_[i] > 0) longest_[i] = std::max(longest_[i], stay_peak_[i]);
      if (whole && held_[i] <= 0 && looks_ > kFirstRecords)
        stay_record_.add(score_peak_[i], settled);
      score_[i] = stay_peak_[i] = score_peak_[i] = 0;
    }
  }
  void hold_what_was_raised(const Cells& changed) {
    largest_nearby(carried_, near_);
    largest_nearby(near_, before_);
    active_ = false;
    for (std::size_t i = 0; i < held_.size(); ++i) {
      if (held_[i] > 0) held_[i] = changed[i] > 0 || stay_[i] > 0 ? kHold : held_[i] - 1;
      const bool moved_on = fresh_[i] > 0 && wander_[i] > 1 && before_[i] > 0;
      if (carried_[i] > 0 || moved_on) carried_[i] = fresh_[i] > 0 ? kCarry : carried_[i] - 1;
      active_ = active_ || (held_[i] > 0 && changed[i] > 0) || (carried_[i] > 0 && fresh_[i] > 0);
    }
  }
  /// Finds the best cell not held whose score reaches the limit, and the blob of `part` around it.
  bool find(const Cells& score, const Cells& held, float limit, bool settled, Found& found) {
    std::size_t best = 0;
    float most = 0;
    for (std::size_t i = 0; i < score.size(); ++i)
      if (part_[i] > 0 && held[i] <= 0 && score[i] > most) most = score[best = i];
    found.ratio = std::max(found.ratio, most / limit);
    if (most < limit || !settled) return false;
    found.looks = int(
        std::ceil(std::min(std::max(wander_[best] / sensitivity_[best], stay_[best]), minimum_)));
    spread(best, found.box);
    if (blob_.size() < 2 && most < 2 * limit) return found.ratio = 0.99f, false;  // a flicker
    hold_blob();
    return active_ = true;
  }
  void hold_blob() {
    near_.fill(0);
    for (const std::size_t i : blob_) near_[i] = 1;
    widen(near_);
    for (std::size_t i = 0; i < near_.size(); ++i) {
      if (near_[i] <= 0) continue;
      held_[i] = kHold;
      carried_[i] = kCarry;
    }
  }
  /// Marks the surroundings of marked cells.
  void widen(Cells& marks) {
    for (int round = 0; round < kNear; ++round) {
      largest_nearby(marks, before_);
      std::swap(marks, before_);
    }
  }
  void spread(std::size_t from, CellBox& box) {
    box = {stay_.columns, stay_.rows, 0, 0};
    blob_.assign(1, from);
    part_[from] = 0;
    for (std::size_t next = 0; next < blob_.size(); ++next) {
      const int y = int(blob_[next]) / part_.columns, x = int(blob_[next]) % part_.columns;
      box = {std::min(box.left, x), std::min(box.top, y), std::max(box.right, x + 1),
             std::max(box.bottom, y + 1)};
      for (int v = std::max(0, y - 1); v <= std::min(part_.rows - 1, y + 1); ++v) {
        for (int u = std::max(0, x - 1); u <= std::min(part_.columns - 1, x + 1); ++u) {
          if (part_.at(v, u) <= 0) continue;
          part_.at(v, u) = 0;
          blob_.push_back(std::size_t(v * part_.columns + u));
        }
      }
    }
  }

  const Cells sensitivity_;
  const float minimum_;
  const double memory_;
  SeenColours colours_;
  Record stay_record_, record_of_new_;
  std::int64_t looks_ = 0, rests_ = 0;  ///< so far; of those, without motion
  bool active_ = false, moves_ = false;
  float busy_ = 0;  ///< mean of the last minute: cells that change in a look
  Cells stay_, longest_, stay_peak_, score_peak_, score_, held_;  ///< for standing objects
  Cells fresh_, fresh_near_, wander_, carried_;                   ///< for new objects
  Cells entered_;   ///< look at which something came where nothing was
  Cells visited_;   ///< rests_ when something was last there or nearby; kEver: accepted
  Cells pardoned_;  ///< looks at what was accepted until its colours are usual
  Cells before_, near_, part_;
  std::vector<std::size_t> blob_;
};

}  // namespace millrace::app
