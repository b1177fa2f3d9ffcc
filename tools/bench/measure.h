// The questions that benchmarks ask of C++, which need a clock or access to the engine.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "engine/monitor/clock.h"
#include "engine/monitor/median.h"

namespace millrace::bench {

using Json = nlohmann::ordered_json;

/// A question from Python (tools/bench/measuring.py). Define one as a global to add it.
///
/// `answer` takes a JSON object, measures for about "seconds", and returns that turn's figures;
/// Python takes medians over turns. Times are in milliseconds unless the name says otherwise.
/// Thread-bound. Throws app::ConfigError for an invalid question.
///
/// An "arm" is {"network" (model_of()), "size"} and, where it differs from the trainer's default:
/// "schedule", "stages", "cut", "threads", "capture", "microbatches", "recompute", "channels_last".
/// An arm is set up once and reused.
struct Question {
  Question(const char* name, Json (*answer)(const Json& question));
};

/// Median milliseconds of a call of `work`, over about `seconds` and at least `least` calls. `work`
/// receives the number of calls so far.
template <class Work>
double median_ms(double seconds, int least, const Work& work) {
  std::vector<double> times;
  const double end = engine::now_ms() + 1e3 * seconds;
  for (int n = 0; n < least || engine::now_ms() < end; ++n) {
    const double start = engine::now_ms();
    work(n);
    times.push_back(engine::now_ms() - start);
  }
  return engine::median(std::move(times));
}

}  // namespace millrace::bench
