// Bytes that each stage holds under each schedule.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>

#include "engine/trainer/trainer.h"

namespace millrace::bench {

/// What each stage of `options`, with a cut, holds after four minibatches of blank samples, counted
/// at the allocator. Steps run eagerly: recorded ones keep every slot's memory for good.
std::vector<engine::StageMemory> memory_of(engine::TrainerOptions options);

/// {"stages", "microbatches", "arms": [{"arm", "paper": {"samples", "versions"}, "stages":
/// [{...}]}]}, as memory_of() counts them on pictures of `size` x `size`, beside what the number of
/// samples that the schedule's paper has a stage keep would cost.
nlohmann::ordered_json memory_by_schedule(std::int64_t size);

}  // namespace millrace::bench
