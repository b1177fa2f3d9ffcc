// Where a test program records: on doubles and by step programs (tests/engine), on a CUDA device
// (tests/host_device).
#pragma once

#include "engine/trainer/trainer.h"

namespace millrace::engine {

/// `options` with all stages recorded, once per backend. The first one is on backend_there(), which
/// is behind; others work at once.
std::vector<TrainerOptions> recorded(TrainerOptions options);
std::unique_ptr<capture::Backend> backend_there();
c10::Device device_there();

}  // namespace millrace::engine
