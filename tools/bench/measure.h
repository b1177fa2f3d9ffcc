// What the benchmarks ask of C++: whatever needs a clock, or the engine's insides, in one process.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace millrace::bench {

using Json = nlohmann::ordered_json;

// Each answers one question of the Python half (tools/bench/measuring.py) from its JSON object,
// measures for about "seconds", and returns figures of that one turn: medians over turns are
// Python's. Times are in milliseconds unless the name says otherwise. Thread-bound. Throws
// app::ConfigError for a question that makes no sense.
//
// An "arm" is {"network", "size"} and, where it differs from the trainer's default: "schedule",
// "stages", "cut", "threads", "capture", "microbatches", "virtual_stages", "recompute",
// "channels_last". It is set up once and kept.

/// {"arm"}: {"cut", "workers", "group", "programs"}: where it is cut, samples an update, whether
/// steps are programs.
Json describe(const Json& question);
/// {"arm", "seconds"}: figures of the running pipeline.
Json turn(const Json& question);
/// {"arm", "seconds", "link"}: stages measured alone and the step that the simulator makes of them.
/// With "delay_ms" and "message_ms": as over ranks, each end of a message being work of half
/// "message_ms".
Json predict(const Json& question);
/// {"arm", "link"}: the same from what each module costs by itself, cut by those costs, a core a
/// stage.
Json predict_by_modules(const Json& question);
/// {"arm"}: [{"versions", "samples", "weights", "stashes", "activations", "total"}], bytes by
/// stage.
Json memory(const Json& question);
/// {"arm"}: the share of time that workers wait if stages are equal and a backward takes twice the
/// forward.
Json equal_stages_bubble(const Json& question);
/// {"arm", "seconds"}: a step of the one stage called in a loop, without links, monitor or threads.
Json bare_loop(const Json& question);
/// {"arm"}: floating-point operations of a step's multiply-adds.
Json flops(const Json& question);

/// {}: nanoseconds that the monitor takes from a step, with as many calls as a worker of a middle
/// stage makes.
Json monitor(const Json& question);
/// {}: FLOP/s of a core's multiply-adds on its registers alone.
Json peak(const Json& question);
/// {}: {"latency_ms", "bytes_per_ms"}: a hand-off between cores, now.
Json link(const Json& question);
/// {"threads"}: {"cores", "provenance"}: this machine.
Json machine(const Json& question);

/// {"size", "frames"}: from the moment that an RTSP camera shows a picture to its prediction.
Json camera(const Json& question);
/// {"width", "height", "channels", "seconds"}: a decoded frame to a sample, microseconds by way.
Json ingest(const Json& question);
/// {"pause_us", "seconds"}: a frame from thread to thread, nanoseconds by way.
Json hop(const Json& question);
/// {"uri", "seed", "width", "height", "frames", "folder"}: writes the first frames there as
/// 00000.ppm and so on. Answers with their classes, -1 where there is none.
Json frames(const Json& question);
/// {"settings", "frames", "weights"}: the report of a run with these keys, which leaves its weights
/// there.
Json learn(const Json& question);
/// {}: [{"name", "flushes", "minibatches", "vertical_sync"}]: ScheduleEntry.
Json schedules(const Json& question);

/// {"path", "frames"}: a profile file as JSON.
Json profile(const Json& question);
/// {"profile", "devices", "links", "overlap", "schedule"}: periods of the best cut with and without
/// replicas and of data parallelism, and the work of all modules.
Json cuts(const Json& question);
/// {"profile", "devices", "schedule", "microbatches", "virtual_stages"}: what the best plan comes
/// to.
Json outcome(const Json& question);

}  // namespace millrace::bench
