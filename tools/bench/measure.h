// What the benchmarks ask of C++: whatever needs a clock, or the engine's insides, in one process.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace millrace::bench {

using Json = nlohmann::ordered_json;

/// A question of the Python half (tools/bench/measuring.py). Constructing one, as a global, adds
/// it.
///
/// `answer` gets its JSON object, measures for about "seconds", and returns figures of that one
/// turn: medians over turns are Python's. Times are in milliseconds unless the name says otherwise.
/// Thread-bound. Throws app::ConfigError for a question that makes no sense.
///
/// An "arm" is {"network", "size"} and, where it differs from the trainer's default: "schedule",
/// "stages", "cut", "threads", "capture", "microbatches", "virtual_stages", "recompute",
/// "channels_last". It is set up once and kept.
struct Question {
  Question(const char* name, Json (*answer)(const Json& question));
};

}  // namespace millrace::bench
