// Bytes that each stage holds under each schedule at 4 stages.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>

namespace millrace::tools {

/// {"stages", "microbatches", "arms": [{"arm", "paper": {"samples", "versions"}, "stages":
/// [{...}]}]}, counted at the allocator on pictures of `size` x `size`, beside what the number of
/// samples that the schedule's paper has a stage keep would cost.
nlohmann::ordered_json memory_by_schedule(std::int64_t size);

}  // namespace millrace::tools
