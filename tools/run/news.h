// What happens in a run that whoever looks at it should know, as lines on stderr.
#pragma once

#include "engine/pipeline/loss_guard.h"
#include "io/source/stream_health.h"
#include "tools/run/novelty.h"
#include "tools/run/progress.h"

namespace millrace::tools {

/// Tells of roll-backs, of a source that goes away or is back, and of what was out of the ordinary:
/// each once. Main thread; what it looks at may change meanwhile and outlives it.
class News {
 public:
  News(const engine::LossGuard& guard, const io::StreamHealth& health, const Novelty& novelty)
      : guard_(guard), health_(health), novelty_(novelty) {}

  /// What is new since the last call.
  void tell(Progress& progress);

 private:
  void tell_of_roll_backs(Progress& progress);
  void tell_of_the_source(Progress& progress);
  /// Also of what came and went since the last look, of which only the latest is known by its
  /// frame.
  void tell_of_events(Progress& progress);

  const engine::LossGuard& guard_;
  const io::StreamHealth& health_;
  const Novelty& novelty_;
  bool connected_ = true, in_event_ = false;  ///< told of
  std::int64_t roll_backs_ = 0, events_ = 0;  ///< told of
};

}  // namespace millrace::tools
