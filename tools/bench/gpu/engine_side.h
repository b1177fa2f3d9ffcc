// The engine's side of the GPU benchmark, and the loop that times either side.
#pragma once

#include <ctime>

#include "engine/trainer/trainer.h"
#include "tools/bench/bench_arm.h"

namespace millrace::bench {

/// What a device does before it is measured: it starts at a low clock.
constexpr std::chrono::milliseconds kWarmUp(50);
/// How long the device is idle before a lone frame.
constexpr std::chrono::milliseconds kRest(1);
constexpr int kBatch = 16;  ///< steps under way; fewer than StageStep has before it waits by itself

/// What `body` says of each of its runs in about `seconds`, after kWarmUp of them.
template <class Body>
std::vector<double> repeated(double seconds, const Body& body) {
  for (const auto warm = engine::Clock::now() + kWarmUp; engine::Clock::now() < warm;) body();
  std::vector<double> said;
  const auto end = engine::Clock::now() + std::chrono::duration<double>(seconds);
  while (said.size() < 3 || engine::Clock::now() < end) said.push_back(body());
  return said;
}

/// Of the calling thread.
inline double processor_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * double(now.tv_sec) + 1e-3 * double(now.tv_nsec);
}

/// Frames a second that the engine learns from, the pipeline being full, as a function of the
/// seconds that it may take.
std::function<double(double)> engine_fps(const engine::TrainerOptions& options);

/// Milliseconds from a sample in its slot to its prediction, the device having been idle for kRest
/// before. Of about `seconds`.
std::vector<double> lone_frames_ms(const engine::TrainerOptions& options, double seconds);

/// Processor time of a sample's calls on a step as a worker has it, recorded: microseconds, the
/// median over batches, as a function of the seconds. The device's work is waited for untimed: a
/// worker that waits sleeps, and what the driver does meanwhile is not the step's.
std::function<double(double)> called_step_us(const engine::TrainerOptions& options);

}  // namespace millrace::bench
