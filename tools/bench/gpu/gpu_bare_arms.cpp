// The GPU benchmark's arms of the engine against bare graphs.
#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>
#include <ctime>

#include "capture/devices.h"
#include "capture/stage_step.h"
#include "engine/pipeline/capture_pass.h"
#include "engine/trainer/stage_building.h"
#include "tools/bench/gpu/bare_step.h"
#include "tools/bench/gpu/gpu_arm.h"

namespace millrace::bench {
namespace {

using engine::Clock;
using namespace std::chrono_literals;

/// The engine's side.
std::shared_ptr<BenchArm> engine_arm(const engine::TrainerOptions& options) {
  return std::make_shared<BenchArm>("", options.sample.height, options);
}

std::shared_ptr<BareSteps> bare_steps(const engine::TrainerOptions& options,
                                      BareWork work = BareWork::step,
                                      BareLaunch how = BareLaunch::graph) {
  return std::make_shared<BareSteps>(make_bare_steps(options, work, how));
}

/// Of the calling thread, in seconds.
double processor_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

/// Calls `calls` until `seconds` are over and returns the mean of the processor time that they say.
template <class Calls>
double mean_time(double seconds, const Calls& calls) {
  for (const auto warm = Clock::now() + kWarmUp; Clock::now() < warm;) calls();
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  double sum = 0;
  int count = 0;
  for (; count == 0 || Clock::now() < end; ++count) sum += calls();
  return sum / count;
}

/// A step as a worker has it, recorded, and what a worker calls for each sample.
class CalledStep {
 public:
  explicit CalledStep(const engine::TrainerOptions& options)
      : schedule_(engine::for_recording(engine::schedule_of(options))),
        samples_(schedule_.slots(), {1, 3, options.sample.height, options.sample.width}, {},
                 /*pinned=*/true),
        step_(make_step(options)) {
    engine::capture_steps(schedule_, engine::longest_launch_groups(schedule_), {step_.get()});
  }

  /// Processor time of a sample's calls, the mean over a batch. The device's work is waited for
  /// untimed: a worker that waits sleeps, and what the driver does meanwhile is not the step's.
  double time() {
    // Fewer than StageStep has under way before it waits by itself.
    constexpr int kBatch = 16;
    const double begin = processor_time();
    for (int i = 0; i < kBatch; ++i) {
      const int slot = int(sample_++ % schedule_.slots());
      step_->forward(slot, stages::kNewest);
      step_->backward(slot, slot);
      step_->update();
      launched_ = step_->launch();
    }
    const double launched = processor_time();
    step_->synchronize();
    const double over = processor_time();
    for (int i = kBatch; i-- > 0;) step_->over(launched_ - i);
    return (processor_time() - over + launched - begin) / kBatch;
  }

 private:
  std::unique_ptr<capture::StageStep> make_step(const engine::TrainerOptions& options) {
    capture::use_repeatable_kernels();
    std::vector<stages::Stage> stages = engine::build_stages(options, schedule_);
    const c10::Device device = stages[0].parameters().flat().device();
    return std::make_unique<capture::StageStep>(
        std::move(stages[0]),
        options.make_backend ? options.make_backend(device) : capture::make_graph_backend(device),
        device, samples_, nullptr, nullptr);
  }

  engine::Schedule schedule_;
  capture::SampleBuffers samples_;
  std::unique_ptr<capture::StageStep> step_;
  std::int64_t sample_ = 0, launched_ = 0;
};

/// Processor time of launching a bare step, the mean over a batch.
double bare_launch_time(BareStep& step) {
  constexpr int kBatch = 16;
  const double begin = processor_time();
  for (int i = 0; i < kBatch; ++i) step.launch();
  const double time = (processor_time() - begin) / kBatch;
  step.synchronize();
  return time;
}

/// From one sample's prediction to the next sample: all that the last one left to be done is done
/// by then. Both sides wait so, since a device that rests has another clock than one at work.
constexpr auto kRest = 2ms;

/// Gives a sample when the one before was predicted and the pipeline has rested.
class LoneFeed final : public engine::Feed, public engine::Observer {
 public:
  LoneFeed(engine::Trainer& trainer, std::size_t elements, double seconds, std::int64_t warm_up)
      : trainer_(trainer), frame_(elements, 0.5f), seconds_(seconds), warm_up_(warm_up) {
    ms_.reserve(std::size_t(seconds_ / kRest) + 3 * std::size_t(warm_up));
  }

  Status poll(std::chrono::microseconds patience) override {
    const Clock::time_point give_up = Clock::now() + patience;
    if (taken_ == 0) begin_ = Clock::now();
    do {
      // Looks again at once: the kernel's wake-up is the source's, not the engine's.
      const Clock::time_point predicted = predicted_.load(std::memory_order_acquire);
      const Clock::time_point now = Clock::now();
      if (taken_ > 0 && (predicted == kNever || now - predicted < kRest)) continue;
      return taken_ > 2 * warm_up_ && now - begin_ > seconds_ ? Status::end : Status::ready;
    } while (Clock::now() < give_up);
    return Status::wait;
  }
  void take(engine::Sample& sample) override {
    std::copy(frame_.begin(), frame_.end(), sample.input().data());
    sample.info.frame = taken_++;
    predicted_.store(kNever, std::memory_order_relaxed);
    sample.info.captured = Clock::now();
  }
  void predicted(engine::Sample& sample, float) override {
    const engine::SampleInfo& info = sample.info;
    const Clock::time_point now = Clock::now();
    if (info.frame >= warm_up_)
      ms_.push_back(std::chrono::duration<double, std::milli>(now - info.captured).count());
    predicted_.store(now, std::memory_order_release);
  }
  double median_ms() const { return median(ms_); }
  /// The latency that one sample in a thousand exceeds, over the median.
  double tail() {
    const auto rank = std::ptrdiff_t(0.999 * double(ms_.size() - 1));
    std::nth_element(ms_.begin(), ms_.begin() + rank, ms_.end());
    return ms_[std::size_t(rank)] / median_ms();
  }

 private:
  static constexpr Clock::time_point kNever{};
  engine::Trainer& trainer_;
  std::vector<float> frame_;
  std::chrono::duration<double> seconds_;
  std::int64_t warm_up_, taken_ = 0;
  Clock::time_point begin_;
  std::atomic<Clock::time_point> predicted_{kNever};  ///< the last sample, and when
  std::vector<double> ms_;
};

/// Median of one launch from call to end, the device having rested before.
double lone_launch_ms(const BareSteps& steps, double seconds) {
  std::vector<double> ms;
  seconds_a_round(steps, 0);  // warms up
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (ms.size() < 3 || Clock::now() < end) {
    const Clock::time_point rested = Clock::now() + kRest;
    while (Clock::now() < rested) {
    }
    const Clock::time_point begin = Clock::now();
    steps[0]->launch();
    steps[0]->synchronize();
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  return median(ms);
}

}  // namespace

GpuArm relaunch_arm(const engine::TrainerOptions& options) {
  const auto replayed =
      options.devices.front().cuda ? BareLaunch::pytorch_graph : BareLaunch::graph;
  const auto ms = [](const std::shared_ptr<BareSteps>& steps) {
    return [=](double seconds) { return 1e3 * seconds_a_round(*steps, seconds); };
  };
  const auto engine_ms = [engine = engine_arm(options)](double seconds) {
    return 1e3 / frames_a_second(*engine, seconds);
  };
  return {{{"engine_ms", engine_ms},
           {"bare_ms", ms(bare_steps(options))},
           {"replay_ms", ms(bare_steps(options, BareWork::step, replayed))}},
          {{"bare_ratio", "engine_ms", "bare_ms"}, {"ratio", "engine_ms", "replay_ms"}}};
}

GpuArm independent_arm(const engine::TrainerOptions& options) {
  const auto engine = engine_arm(options);
  const auto bare = bare_steps(options);
  return {{{"engine_fps", [=](double seconds) { return frames_a_second(*engine, seconds); }},
           // Rounds count when the slowest has done them.
           {"bare_fps", [=](double seconds) { return 1 / seconds_a_round(*bare, seconds); }}},
          {{"ratio", "engine_fps", "bare_fps"}}};
}

GpuArm processor_time_arm(const engine::TrainerOptions& options) {
  const auto called = std::make_shared<CalledStep>(options);
  const auto bare = bare_steps(options);
  const auto engine_us = [=](double seconds) {
    return 1e6 * mean_time(seconds, [&] { return called->time(); });
  };
  const auto bare_us = [=](double seconds) {
    return 1e6 * mean_time(seconds, [&] { return bare_launch_time(*bare->front()); });
  };
  return {{{"engine_us", engine_us}, {"bare_us", bare_us}}, {{"ratio", "engine_us", "bare_us"}}};
}

GpuArm latency_arm(const engine::TrainerOptions& options) {
  engine::TrainerOptions uncut = options;  // all forwards in one graph
  uncut.stages = 1;
  uncut.cut.clear();
  uncut.devices.resize(1);
  const auto forward = bare_steps(uncut, BareWork::forward), step = bare_steps(uncut);
  const auto tail = std::make_shared<double>();  // of the engine's last turn
  const auto engine_ms = [=](double seconds) {
    engine::Trainer trainer(options);
    LoneFeed feed(trainer, trainer.target_elements(), seconds, 2 * options.stages);
    trainer.run(feed, &feed);
    *tail = feed.tail();
    return feed.median_ms();
  };
  return {{{"engine_ms", engine_ms},
           {"tail", [=](double) { return *tail; }},
           {"bare_ms", [=](double seconds) { return lone_launch_ms(*forward, seconds); }},
           {"step_ms", [=](double seconds) { return lone_launch_ms(*step, seconds); }}},
          {{"ratio", "engine_ms", "bare_ms"}}};
}

}  // namespace millrace::bench
