#include "tools/bench/gpu/engine_side.h"

#include <ATen/detail/CUDAHooksInterface.h>

#include <atomic>

#include "capture/devices.h"
#include "capture/stage_step.h"
#include "engine/pipeline/perform.h"
#include "engine/schedule/launch_groups.h"
#include "engine/trainer/trainer.h"

namespace millrace::bench {
namespace {

using engine::Clock;

/// Gives a sample once the last one is predicted and the device has been idle for kRest.
class LoneFeed final : public engine::Feed, public engine::Observer {
 public:
  LoneFeed(std::size_t elements, const engine::Device& device, double seconds, std::int64_t warm_up)
      : frame_(elements, 0.5f), device_(device), seconds_(seconds), warm_up_(warm_up) {
    ms_.reserve(std::size_t(seconds_ / kRest) + 3 * std::size_t(warm_up));
  }

  Status poll(std::chrono::microseconds patience) override {
    const Clock::time_point give_up = Clock::now() + patience;
    if (taken_ == 0) begin_ = Clock::now();
    do {
      // Spins: the kernel's wake-up latency is the source's, not the engine's.
      if (taken_ > 0 && !rested()) continue;
      return taken_ > 2 * warm_up_ && Clock::now() - begin_ > seconds_ ? Status::end
                                                                       : Status::ready;
    } while (Clock::now() < give_up);
    return Status::wait;
  }
  void take(engine::Sample& sample) override {
    std::copy(frame_.begin(), frame_.end(), sample.input().data());
    sample.info.frame = taken_++;
    predicted_.store(false, std::memory_order_relaxed);
    idle_ = kNever;
    sample.info.captured = Clock::now();
  }
  void predicted(engine::Sample& sample, float) override {
    const engine::SampleInfo& info = sample.info;
    const Clock::time_point now = Clock::now();
    if (info.frame >= warm_up_)
      ms_.push_back(std::chrono::duration<double, std::milli>(now - info.captured).count());
    predicted_.store(true, std::memory_order_release);
  }
  const std::vector<double>& ms() const { return ms_; }

 private:
  static constexpr Clock::time_point kNever{};

  /// A step continues after its prediction, and a worker may launch more meanwhile.
  bool rested() {
    if (!predicted_.load(std::memory_order_acquire)) return false;
    if (idle_ == kNever) {
      synchronize();
      idle_ = Clock::now();
    }
    if (Clock::now() - idle_ < kRest) return false;
    synchronize();
    return true;
  }
  void synchronize() const {
    if (device_.cuda) at::detail::getCUDAHooks().deviceSynchronize(c10::DeviceIndex(device_.index));
  }

  std::vector<float> frame_;
  engine::Device device_;
  std::chrono::duration<double> seconds_;
  std::int64_t warm_up_, taken_ = 0;
  Clock::time_point begin_, idle_ = kNever;  ///< idle_: when the device was found idle
  std::atomic<bool> predicted_{false};       ///< the last sample's
  std::vector<double> ms_;
};

/// A worker's recorded step, and its calls per sample.
class CalledStep {
 public:
  explicit CalledStep(const engine::TrainerOptions& options)
      : schedule_(engine::for_recording(engine::schedule_of(options))),
        samples_(schedule_.slots(), {1, 3, options.sample.height, options.sample.width}, {},
                 /*pinned=*/true) {
    capture::use_repeatable_kernels();
    std::vector<stages::Stage> stages = engine::build_stages(options, schedule_);
    const c10::Device device = stages[0].parameters().flat().device();
    step_ = std::make_unique<capture::StageStep>(
        std::move(stages[0]), std::move(engine::make_backends(options, 1, true)[0]), device,
        samples_, nullptr, nullptr);
    engine::capture_steps(schedule_, {step_.get()});
  }

  double us() {
    const double begin = processor_us();
    for (int i = 0; i < kBatch; ++i) {
      const int slot = int(sample_++ % schedule_.slots());
      step_->forward(slot, stages::kNewest);
      step_->backward(slot, slot);
      step_->update();
      launched_ = step_->launch();
    }
    const double launched = processor_us();
    step_->synchronize();
    const double over = processor_us();
    for (int i = kBatch; i-- > 0;) step_->over(launched_ - i);
    return (processor_us() - over + launched - begin) / kBatch;
  }

 private:
  const engine::Schedule schedule_;
  capture::SampleBuffers samples_;
  std::unique_ptr<capture::StageStep> step_;
  std::int64_t sample_ = 0, launched_ = 0;
};

}  // namespace

std::function<double(double)> engine_fps(const engine::TrainerOptions& options) {
  return [options](double seconds) {
    // Earlier, stages have no gradients yet; and when the stream ends, as many samples as there are
    // slots may be reported together.
    const std::int64_t filled = 2 * options.stages;
    const std::int64_t slots = engine::for_recording(engine::schedule_of(options)).slots();
    Predictions predictions;
    const double warm_up = std::chrono::duration<double>(kWarmUp).count();
    engine::Trainer trainer(options);
    take_turn(trainer, warm_up + seconds, filled + slots + 6, &predictions);
    // A mean, like that of back-to-back launches: the monitor's median comes from buckets 1.6 %
    // wide.
    const auto& at = predictions.at;
    const auto begin = std::lower_bound(at.begin() + filled, at.end() - 1, at[0] + kWarmUp);
    return double(at.end() - begin - 1) / std::chrono::duration<double>(at.back() - *begin).count();
  };
}

std::vector<double> lone_frames_ms(const engine::TrainerOptions& options, double seconds) {
  engine::Trainer trainer(options);
  LoneFeed feed(trainer.target_elements(), options.devices[0], seconds, 2 * options.stages);
  trainer.run(feed, &feed);
  return feed.ms();
}

std::function<double(double)> called_step_us(const engine::TrainerOptions& options) {
  const auto step = std::make_shared<CalledStep>(options);
  return [step](double seconds) { return median(repeated(seconds, [&] { return step->us(); })); };
}

}  // namespace millrace::bench
