// Updates that several ranks apply alike.
#pragma once

#include "engine/pipeline/loss_guard.h"
#include "engine/pipeline/rank_options.h"

namespace millrace::engine {

/// By the worker of `stage`, before its update. Where copies of the pipeline learn one network, the
/// gradient becomes the mean of theirs, none is applied unless all `learned`, and the gravest alarm
/// is everybody's. Where ranks share modules, all discard a gradient that is not finite on one.
/// Blocks until all have called it.
void agree_on_update(const Exchange& exchange, Freight& freight, int stage, bool& learned,
                     Alarm& alarm);

}  // namespace millrace::engine
