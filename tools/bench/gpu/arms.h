// The GPU benchmark's arms.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "engine/trainer/trainer.h"

namespace millrace::bench {

/// Where arms run: on a GPU. Tests have a double of one.
struct GpuBench {
  engine::Device device = {.cuda = true, .index = 0};  ///< that all stages share
  /// As TrainerOptions::make_backend; empty: the device's own.
  std::function<std::unique_ptr<capture::Backend>(c10::Device)> make_backend;
};

/// `question`: {"arm", "network": {"preset", "layers", "features", "kernel"}, "width", "height",
/// "stages", "precision", "seconds", "turns"}. Returns the arm's figures, or {"error": words}. All
/// but "kernels" do the same in two or more ways, in turn, each for about so many seconds: {name:
/// median, ..., "ratio": of the first over the second, "turns": {name: [values], ...}}.
///
/// "step": engine_ms, between two predictions of the engine; step_ms, the network's step alone as
///   one graph, on a sample that lies on the device.
/// "stages": staged_fps, frames a second that so many stages learn from; one_fps, one stage.
/// "processor time": engine_us, what a worker's calls on its step take of its processor time;
///   launch_us, one launch of the same as one graph.
/// "latency": engine_ms, from a sample that lies in its slot to its prediction, while the device is
///   idle; bare_ms, one graph of copy, all forwards and copy, from launch to end; tail, what one in
///   a thousand of the engine's takes over its median.
/// "profile": modules_ms, all modules' times of a profile added up; step_ms, as above.
/// "kernels": {"operations": [{"name", "kernel", "us", "flops", "bytes"}]}, each operation of the
///   whole network's step by itself, many times over.
/// "provenance": of a run with one thread.
///
/// Blocks; the engine's threads come and go.
nlohmann::ordered_json answer(const GpuBench& how, const nlohmann::ordered_json& question);

}  // namespace millrace::bench
