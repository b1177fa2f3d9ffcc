// The engine's side of the GPU benchmark, and the timing loop for both sides.
#pragma once

#include <ctime>

#include "engine/trainer/trainer.h"
#include "tools/bench/bench_arm.h"

namespace millrace::bench {

/// Run before measuring, as the device starts at a low clock.
constexpr std::chrono::milliseconds kWarmUp(50);
/// Idle time of the device before a lone frame.
constexpr std::chrono::milliseconds kRest(1);
constexpr int kBatch = 16;  ///< steps in flight; fewer than make StageStep wait by itself

/// The values that `body` returns in about `seconds`, after kWarmUp of warm-up.
template <class Body>
std::vector<double> repeated(double seconds, const Body& body) {
  for (const auto warm = engine::Clock::now() + kWarmUp; engine::Clock::now() < warm;) body();
  std::vector<double> said;
  const auto end = engine::Clock::now() + std::chrono::duration<double>(seconds);
  while (said.size() < 3 || engine::Clock::now() < end) said.push_back(body());
  return said;
}

inline double processor_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * double(now.tv_sec) + 1e-3 * double(now.tv_nsec);
}

/// Frames per second that the engine trains with a full pipeline, as a function of the seconds it
/// may take.
std::function<double(double)> engine_fps(const engine::TrainerOptions& options);

/// Milliseconds from a sample in its slot to its prediction, on a device idle for kRest; as many
/// samples as fit in about `seconds`.
std::vector<double> lone_frames_ms(const engine::TrainerOptions& options, double seconds);

/// CPU time in microseconds of a worker's calls on a recorded step, per sample: the median over
/// batches, as a function of the seconds. Excludes waiting for the device: a worker sleeps then,
/// and the driver's work meanwhile is not the step's.
std::function<double(double)> called_step_us(const engine::TrainerOptions& options);

}  // namespace millrace::bench
