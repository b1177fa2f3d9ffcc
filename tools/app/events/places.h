#pragma once

#include <cstdint>
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
  explicit SeenColours(const Reduced& like);
  /// Whether the pixel's colour is new there; records it. `exposure` scales to a common light.
  bool is_new(const Reduced& now, std::size_t pixel, float exposure, std::int64_t look);

  static constexpr int kNew = 60;  ///< looks

 private:
  static constexpr int kRegion = 16;  ///< pixels
  static constexpr int kLights = 6, kTones = 32;

  std::size_t index(int row, int column, int light, int u, int v) const;
  void note(int row, int column, int light, int u, int v, std::int32_t look);

  const int rows_, columns_;
  std::vector<std::int32_t> first_;  ///< look of the first sight; 0: none; with a border
};

/// Raises events at a place. Scores each cell in two ways: for how many looks something has stood
/// still there that the background doesn't show, over the longest time before; and for how many
/// looks something new has been moving about or staying: of a colour that is new there, or where
/// nothing ever was. One thread; only the constructor allocates.
class Places {
 public:
  /// `sensitivity`: of each cell; 0: no event there.
  Places(const Reduced& like, Cells sensitivity, double memory);

  struct Found {
    float ratio = 0;  ///< the highest score over its limit; an event from 1 on
    CellBox box;      ///< of the event
  };
  /// Before `settled`, nothing is found, and anything new becomes usual at once; before
  /// `stays_settled`, so does what stays. `calm`: the whole picture is usual: an event may begin.
  Found see(const Reduced& now, const Background& background, bool settled, bool stays_settled,
            bool calm);
  /// Whether the object that raised an event is still there.
  bool active() const { return active_; }
  /// Suppresses events at all places for a while, after the whole picture changed.
  void hold_all() {
    held_.fill(kHold);
    carried_.fill(kCarry);
  }
  /// Makes the box's present content usual.
  void accept(const CellBox& box);

 private:
  /// Looks of absence after which a place, or an object moving on from it, may raise another event.
  static constexpr float kHold = 20, kCarry = 50;

  void see_what_is_new(const Reduced& now, const Background& background, bool settled, bool calm);
  void see_stays(const Background& background, bool settled);
  void hold_what_was_raised(const Cells& changed);
  /// Finds the best cell not held whose score reaches the limit, and the blob of `part` around it.
  bool find(const Cells& score, const Cells& held, float limit, Found& found);
  void hold_blob();
  /// Marks the surroundings of marked cells.
  void widen(Cells& marks);
  void spread(std::size_t from, CellBox& box);

  const Cells sensitivity_;
  const double memory_;
  SeenColours colours_;
  Record stay_record_, record_of_new_;
  std::int64_t looks_ = 0;
  bool active_ = false;
  float busy_ = 0;  ///< mean of the last minute: cells that change in a look
  Cells stay_, longest_, stay_peak_, score_peak_, score_, held_;  ///< for standing objects
  Cells fresh_, fresh_near_, wander_, carried_;                   ///< for new objects
  Cells entered_;  ///< look of the first change there or nearby; 0: none
  Cells before_, near_, part_;
  std::vector<std::size_t> blob_;
};

}  // namespace millrace::app
