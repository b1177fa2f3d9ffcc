// The engine against bare graphs of the same work: what slots, links and workers cost.
#pragma once

#include "tools/bench/gpu/gpu_arm.h"

namespace millrace::bench {

// `options`: those of the engine's side, recorded. The bare side has the same network, weights,
// cut and devices, and copies the same bytes in and out.

/// engine_ms: between two predictions; bare_ms: the same step as one of our graphs launched back to
/// back; replay_ms: as PyTorch replays one (off a GPU: as bare_ms); bare_ratio, ratio: engine over
/// these. One stage.
std::unique_ptr<GpuArm> relaunch_arm(const engine::TrainerOptions& options);

/// engine_fps; bare_fps: as many graphs as there are stages, each on its stream, none waiting for
/// another; ratio: engine over bare. The bare side hands nothing over, so that it lacks the copies
/// at cuts, too.
std::unique_ptr<GpuArm> independent_arm(const engine::TrainerOptions& options);

/// engine_us: what the calls of a worker on its step take of the calling thread's processor time;
/// bare_us: Graph::launch() of the same work; ratio: engine over bare. One stage.
std::unique_ptr<GpuArm> processor_time_arm(const engine::TrainerOptions& options);

/// engine_ms: from a sample that lies in its slot to its prediction, the pipeline being empty
/// before; bare_ms: one graph of copy, all forwards and copy, from launch to end; step_ms: the same
/// with backward and update; tail: what one in a thousand of the engine's takes over its median;
/// ratio: engine_ms over bare_ms.
std::unique_ptr<GpuArm> latency_arm(const engine::TrainerOptions& options);

}  // namespace millrace::bench
