#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "engine/monitor/median.h"
#include "engine/trainer/trainer.h"

namespace millrace::bench {

using engine::median;

/// {"preset", "layers", "features", "kernel"}; default: ten convolutions of 16 features, kernel 5.
stages::ModelSpec model_of(const nlohmann::ordered_json& network);

/// Trains on prepared frames for about `seconds`, and on at least `least` samples so that every
/// figure exists even if samples are slow. Returns when predictions were made.
std::vector<engine::Clock::time_point> take_turn(engine::Trainer& trainer, double seconds,
                                                 std::int64_t least);

}  // namespace millrace::bench
