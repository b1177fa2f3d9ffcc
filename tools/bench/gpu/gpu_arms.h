// The GPU benchmark: which arms there are.
#pragma once

#include "tools/bench/gpu/gpu_arm.h"

namespace millrace::bench {

/// Takes every arm and returns {"suite", "provenance", "turns", "network_turns", "seconds",
/// "stages": [...], "bytes": [...], "relaunch": [...], "independent": [...], "processor_time":
/// [...], "latency": [...], "networks": [...]}: lists of measured() entries. Blocks; the engine's
/// threads come and go.
nlohmann::ordered_json gpu_results(const GpuBench& how);

}  // namespace millrace::bench
