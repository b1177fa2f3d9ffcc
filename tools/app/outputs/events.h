// What happens in a run that its user should know, as lines of text.
#pragma once

#include <functional>
#include <string>

#include "engine/trainer/trainer.h"
#include "io/source/stream_health.h"
#include "tools/app/outputs/novelty.h"

namespace millrace::app {

/// Tells of roll-backs, of a source that goes away or is back, of unexpected frames and of stages
/// whose units have died: each once.
/// One thread; what it looks at may change meanwhile and outlives it.
class Events {
 public:
  using Tell = std::function<void(const std::string& line)>;

  Events(const engine::Trainer& trainer, const io::StreamHealth& health, const Novelty& novelty)
      : trainer_(trainer), guard_(trainer.guard()), health_(health), novelty_(novelty) {}

  /// What is new since the last call.
  void tell(const Tell& tell);

 private:
  void tell_of_roll_backs(const Tell& tell);
  void tell_of_the_source(const Tell& tell);
  /// Also of what came and went since the last look, of which only the latest is known by its
  /// frame.
  void tell_of_novelty(const Tell& tell);
  void tell_of_dead_units(const Tell& tell);

  const engine::Trainer& trainer_;
  const engine::LossGuard& guard_;
  const io::StreamHealth& health_;
  const Novelty& novelty_;
  bool connected_ = true, in_event_ = false;  ///< told of
  std::int64_t roll_backs_ = 0, events_ = 0;  ///< told of
  bool dead_told_ = false;
};

}  // namespace millrace::app
