// One turn of a benchmark's arm: a trainer fed with frames made beforehand.
#pragma once

#include <vector>

#include "engine/monitor/median.h"
#include "engine/trainer/trainer.h"

namespace millrace::bench {

using engine::median;

/// What a turn measured. Times in milliseconds.
struct Turn {
  engine::Reading reading;
  std::vector<engine::StageFacts> facts;  ///< by stage
};

/// Trains as `options` say for about `seconds`, and on at least `least` samples, so that every
/// figure exists however long one takes. `observer` may be null.
Turn take_turn(const engine::TrainerOptions& options, double seconds, std::int64_t least,
               engine::Observer* observer = nullptr);

}  // namespace millrace::bench
