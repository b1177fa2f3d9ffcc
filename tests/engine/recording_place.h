// Where a test program records: on doubles (tests/engine), on a CUDA device (tests/host_device).
#pragma once

#include "engine/trainer/trainer.h"

namespace millrace::engine {

/// Has all stages of `options` recorded there.
void record_there(TrainerOptions& options);
/// For one stage.
std::unique_ptr<capture::Backend> backend_there();
c10::Device device_there();

}  // namespace millrace::engine
