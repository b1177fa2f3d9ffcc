// The latest there is to see of a run.
#pragma once

#include <cstdint>
#include <optional>

#include "tools/page/picture_set.h"
#include "tools/page/server.h"
#include "tools/page/trend.h"

namespace millrace::page {

/// Looks at the run once a second, or four times if somebody watches, and asks for pictures while a
/// viewer waits for one. Nothing is queued: viewers take the latest when they are ready for it.
/// Thread-bound.
class Publisher {
 public:
  explicit Publisher(const WebSubject& subject) : subject_(subject) {}

  /// Does what is due. `viewers`: how many watch; `waiting`: whether one of them is ready for
  /// something new.
  void beat(Clock::time_point now, int viewers, bool waiting);
  /// Until the next beat(): 15 a second while somebody watches.
  static std::chrono::milliseconds period(int viewers);

  /// The state as JSON, of the latest look. `version` grows.
  Bytes state(std::uint64_t& version);
  /// The latest pictures, or null; `version` grows.
  PictureSet* pictures(std::uint64_t& version);
  /// The past up to now; looks first if the latest look is older than a quarter of a second.
  const Trend& trend();
  /// Looks now, so that viewers see the effect of a control at once.
  void look();
  int viewers() const { return viewers_; }

 private:
  const WebSubject& subject_;
  Trend trend_;
  Clock::time_point looked_;
  std::optional<PictureSet> pictures_;
  Bytes state_;  ///< null: not yet made of the latest look
  std::uint64_t state_version_ = 0, picture_version_ = 0;
  int viewers_ = 0;
};

}  // namespace millrace::page
