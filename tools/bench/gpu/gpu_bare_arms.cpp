#include "tools/bench/gpu/gpu_bare_arms.h"

#include <ATen/ATen.h>  // samples

#include <algorithm>
#include <atomic>  // what was predicted
#include <ctime>   // processor time

#include "capture/devices.h"
#include "capture/stage_step.h"
#include "engine/pipeline/capture_pass.h"
#include "tools/bench/gpu/bare_step.h"

namespace millrace::bench {
namespace {

using engine::Clock;
using namespace std::chrono_literals;

BenchArm engine_arm(const engine::TrainerOptions& options) {
  return BenchArm("", options.sample.height, options);
}

class Relaunch final : public GpuArm {
 public:
  explicit Relaunch(const engine::TrainerOptions& options)
      : engine_(engine_arm(options)),
        bare_(make_bare_steps(options)),
        replay_(make_bare_steps(
            options, BareWork::step,
            options.devices.front().cuda ? BareLaunch::pytorch_graph : BareLaunch::graph)) {}
  void turn(double seconds, Figures& figures) override {
    figures.add("engine_ms", 1e3 / frames_a_second(engine_, seconds));
    figures.add("bare_ms", 1e3 * seconds_a_round(bare_, seconds));
    figures.add("replay_ms", 1e3 * seconds_a_round(replay_, seconds));
    figures.add_ratio("bare_ratio", "engine_ms", "bare_ms");
    figures.add_ratio("ratio", "engine_ms", "replay_ms");
  }

 private:
  BenchArm engine_;
  BareSteps bare_, replay_;
};

class Independent final : public GpuArm {
 public:
  explicit Independent(const engine::TrainerOptions& options)
      : engine_(engine_arm(options)), bare_(make_bare_steps(options)) {}
  void turn(double seconds, Figures& figures) override {
    figures.add("engine_fps", frames_a_second(engine_, seconds));
    // Rounds count when the slowest has done them.
    figures.add("bare_fps", 1 / seconds_a_round(bare_, seconds));
    figures.add_ratio("ratio", "engine_fps", "bare_fps");
  }

 private:
  BenchArm engine_;
  BareSteps bare_;
};

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

class ProcessorTime final : public GpuArm {
 public:
  explicit ProcessorTime(const engine::TrainerOptions& options)
      : called_(options), bare_(make_bare_steps(options)) {}
  void turn(double seconds, Figures& figures) override {
    figures.add("engine_us", 1e6 * mean_time(seconds, [this] { return called_.time(); }));
    figures.add("bare_us", 1e6 * mean_time(seconds, [this] { return bare_launch(); }));
    figures.add_ratio("ratio", "engine_us", "bare_us");
  }

 private:
  double bare_launch() {
    constexpr int kBatch = 16;
    const double begin = processor_time();
    for (int i = 0; i < kBatch; ++i) bare_[0]->launch();
    const double time = (processor_time() - begin) / kBatch;
    bare_[0]->synchronize();
    return time;
  }

  CalledStep called_;
  BareSteps bare_;
};

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
double lone_launch_ms(BareStep& step, double seconds) {
  std::vector<double> ms;
  seconds_a_launch([&] { step.launch(); }, [&] { step.synchronize(); }, 0);  // warms up
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (ms.size() < 3 || Clock::now() < end) {
    const Clock::time_point rested = Clock::now() + kRest;
    while (Clock::now() < rested) {
    }
    const Clock::time_point begin = Clock::now();
    step.launch();
    step.synchronize();
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  return median(ms);
}

class Latency final : public GpuArm {
 public:
  explicit Latency(const engine::TrainerOptions& options)
      : options_(options),
        forward_(make_bare_steps(uncut(options), BareWork::forward)),
        step_(make_bare_steps(uncut(options))) {}
  void turn(double seconds, Figures& figures) override {
    engine::Trainer trainer(options_);
    LoneFeed feed(trainer, trainer.target_elements(), seconds, 2 * options_.stages);
    trainer.run(feed, &feed);
    figures.add("engine_ms", feed.median_ms());
    figures.add("tail", feed.tail());
    figures.add("bare_ms", lone_launch_ms(*forward_[0], seconds));
    figures.add("step_ms", lone_launch_ms(*step_[0], seconds));
    figures.add_ratio("ratio", "engine_ms", "bare_ms");
  }

 private:
  /// As one stage: all forwards in one graph.
  static engine::TrainerOptions uncut(engine::TrainerOptions options) {
    options.stages = 1;
    options.cut.clear();
    options.devices.resize(1);
    return options;
  }

  engine::TrainerOptions options_;
  BareSteps forward_, step_;
};

}  // namespace

std::unique_ptr<GpuArm> relaunch_arm(const engine::TrainerOptions& options) {
  return std::make_unique<Relaunch>(options);
}
std::unique_ptr<GpuArm> independent_arm(const engine::TrainerOptions& options) {
  return std::make_unique<Independent>(options);
}
std::unique_ptr<GpuArm> processor_time_arm(const engine::TrainerOptions& options) {
  return std::make_unique<ProcessorTime>(options);
}
std::unique_ptr<GpuArm> latency_arm(const engine::TrainerOptions& options) {
  return std::make_unique<Latency>(options);
}

}  // namespace millrace::bench
