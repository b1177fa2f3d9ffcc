#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/trainer/trainer.h"

namespace millrace::bench {

/// `question`: {"arm", "network": {"preset", "layers", "features", "kernel"}, "width", "height",
/// "stages", "precision", "seconds", "turns"}. Returns the arm's figures, or {"error": words}. All
/// arms but "kernels" do the same work in two or more ways, alternating, each for about that many
/// seconds: {name: median, ..., "ratio": of the first to the second, "turns": {name: [values],
/// ...}}.
///
/// "step": engine_ms, between two predictions of the engine; step_ms, the network's step alone as
/// one graph, on a sample already on the device.
/// "stages": staged_fps, frames per second trained by that many stages; one_fps, by one stage.
/// "processor time": engine_us, CPU time of a worker's calls on its step; launch_us, of one launch
/// of the same step as one graph.
/// "latency": engine_ms, from a sample in its slot to its prediction on an idle device; bare_ms,
/// one graph of copy, all forwards and copy, from launch to end; tail, the engine's 99.9th
/// percentile over its median.
/// "profile": modules_ms, the sum of a profile's module times; step_ms, see "step".
/// "kernels": {"operations": [{"name", "kernel", "us", "flops", "bytes"}]}, each operation of the
/// network's step by itself, repeated many times.
/// "provenance": of a run with one thread.
///
/// Blocks; creates and ends the engine's threads.
nlohmann::ordered_json answer(const nlohmann::ordered_json& question);

}  // namespace millrace::bench
