#include "tools/bench/gpu/arms.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "capture/devices.h"
#include "capture/stage_step.h"
#include "engine/pipeline/perform.h"
#include "engine/plan/balance.h"
#include "engine/schedule/launch_groups.h"
#include "engine/trainer/operations.h"
#include "engine/trainer/profiler.h"
#include "engine/trainer/trainer.h"
#include "tools/app/provenance.h"
#include "tools/bench/bench_arm.h"
#include "tools/bench/gpu/bare_step.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::now_ms;

/// One way to do an arm's work, and its figure, measured for about `seconds`.
struct Way {
  std::string name;
  std::function<double(double seconds)> measure;
};

Json in_turn(const std::vector<Way>& ways, const Json& question) {
  std::map<std::string, std::vector<double>> values;
  for (int turn = 0; turn < question.value("turns", 1); ++turn) {
    for (const Way& way : ways)
      values[way.name].push_back(way.measure(question.at("seconds").get<double>()));
    values["ratio"].push_back(values[ways[0].name].back() / values[ways[1].name].back());
  }
  Json figures;
  for (const auto& [name, of_turns] : values) figures[name] = median(of_turns);
  figures["turns"] = values;
  return figures;
}

/// Warm-up before measuring, since the device starts at a low clock.
constexpr std::chrono::milliseconds kWarmUp(50);
/// Idle time of the device before a lone frame.
constexpr std::chrono::milliseconds kRest(1);
constexpr int kBatch = 16;  ///< steps in flight; fewer than make StageStep wait by itself

/// The values that `body` returns in about `seconds`, after kWarmUp of warm-up.
template <class Body>
std::vector<double> repeated(double seconds, const Body& body) {
  for (const auto warm = Clock::now() + kWarmUp; Clock::now() < warm;) body();
  std::vector<double> said;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (said.size() < 3 || Clock::now() < end) said.push_back(body());
  return said;
}

double processor_us() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * double(now.tv_sec) + 1e-3 * double(now.tv_nsec);
}

/// Gives a sample once the last one is predicted and the device has been idle for kRest, and
/// records the time from its slot to its prediction. Takes about `seconds`.
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

/// The engine's frames per second with a full pipeline, measured for about `seconds`.
double engine_fps(const engine::TrainerOptions& options, double seconds) {
  // Earlier, stages have no gradients yet; and when the stream ends, as many samples as there are
  // slots may be reported together.
  const std::int64_t filled = 2 * options.stages;
  const std::int64_t slots = engine::for_recording(engine::schedule_of(options)).slots();
  const double warm_up = std::chrono::duration<double>(kWarmUp).count();
  engine::Trainer trainer(options);
  const auto at = take_turn(trainer, warm_up + seconds, filled + slots + 6);
  // A mean, like that of back-to-back launches: the monitor's median has buckets 1.6 % wide.
  const auto begin = std::lower_bound(at.begin() + filled, at.end() - 1, at[0] + kWarmUp);
  return double(at.end() - begin - 1) / std::chrono::duration<double>(at.back() - *begin).count();
}

/// Multiplications per module. Counted rather than measured, so that a network is always cut alike.
std::vector<double> multiplications(const stages::Network& network) {
  std::vector<double> all;
  for (int module = 0; module < network.size(); ++module) {
    const stages::ImageShape& shape = network.shape(module);
    double each = double(shape.channels);  // some for an activation, too
    for (const stages::ParameterSpec& parameter : network.parameters(module, module + 1))
      each += double(c10::multiply_integers(parameter.shape));
    all.push_back(each * double(shape.height * shape.width));
  }
  return all;
}

engine::TrainerOptions options_of(const Json& question, int stages) {
  engine::TrainerOptions options{
      .sample = {3, question.at("height"), question.at("width")},
      .numerics = {.precision = kernels::Precision(
                       std::ranges::find(kernels::kPrecisionNames,
                                         question.value("precision", "float32")) -
                       kernels::kPrecisionNames),
                   .tuned = true},
      .capture = engine::Capture::graph};
  options.stages = stages;
  options.network = stages::build_network(model_of(question.at("network")), options.sample);
  options.module_ms = multiplications(*options.network);  // only proportions matter
  options.cut = engine::balanced_cut(options.module_ms, stages);
  options.devices.assign(std::size_t(stages), {.cuda = true, .index = 0});
  options.weights = stages::initial_state(*options.network, 0);
  return options;
}

/// Milliseconds per launch of a whole network's work, with many launches back to back.
double back_to_back_ms(BareStep& step, double seconds) {
  const auto round = [&](int launches) {
    const double begin = now_ms();
    for (int i = 0; i < launches; ++i) step.launch();
    step.synchronize();
    return (now_ms() - begin) / launches;
  };
  round(1);
  const int launches = std::clamp(int(20 / round(1)), 4, 64);  // fewer than fill the queue
  return median(repeated(seconds, [&] { return round(launches); }));
}

/// Times of single launches from call to end, on an idle device.
std::vector<double> lone_launches_ms(BareStep& step, double seconds) {
  return repeated(seconds, [&] {
    for (const auto rested = Clock::now() + kRest; Clock::now() < rested;) {
    }
    const double begin = now_ms();
    step.launch();
    step.synchronize();
    return now_ms() - begin;
  });
}

using Arm = Json (*)(const Json& question);

Json step_arm(const Json& question) {
  const engine::TrainerOptions options = options_of(question, 1);
  BareStep alone(options, BareWork::compute);
  return in_turn({{"engine_ms", [&](double seconds) { return 1e3 / engine_fps(options, seconds); }},
                  {"step_ms", [&](double seconds) { return back_to_back_ms(alone, seconds); }}},
                 question);
}

Json stages_arm(const Json& question) {
  const engine::TrainerOptions staged = options_of(question, question.at("stages"));
  const engine::TrainerOptions one = options_of(question, 1);
  return in_turn({{"staged_fps", [&](double seconds) { return engine_fps(staged, seconds); }},
                  {"one_fps", [&](double seconds) { return engine_fps(one, seconds); }}},
                 question);
}

Json processor_time_arm(const Json& question) {
  const engine::TrainerOptions options = options_of(question, 1);
  const engine::Schedule schedule = engine::for_recording(engine::schedule_of(options));
  capture::SampleBuffers samples(schedule.slots(),
                                 {1, 3, options.sample.height, options.sample.width}, {},
                                 /*pinned=*/true);
  capture::use_repeatable_kernels();
  std::vector<stages::Stage> stages = engine::build_stages(options, schedule);
  const c10::Device device = stages[0].parameters().flat().device();
  capture::StageStep step(std::move(stages[0]),
                          std::move(engine::make_backends(options, 1, true)[0]), device, samples,
                          nullptr, nullptr);
  engine::capture_steps(schedule, {&step});
  std::int64_t sample = 0, launched = 0;
  // Excludes waiting for the device: a worker sleeps then, and the driver's work meanwhile is not
  // the step's.
  const auto engine_us = [&] {
    const double begin = processor_us();
    for (int i = 0; i < kBatch; ++i) {
      const int slot = int(sample++ % schedule.slots());
      step.forward(slot, stages::kNewest);
      step.backward(slot, slot);
      step.update();
      launched = step.launch();
    }
    const double end = processor_us();
    step.synchronize();
    const double over = processor_us();
    for (int i = kBatch; i-- > 0;) step.over(launched - i);
    return (processor_us() - over + end - begin) / kBatch;
  };
  BareStep bare(options);
  const auto launch_us = [&] {
    const double begin = processor_us();
    for (int i = 0; i < kBatch; ++i) bare.launch();
    const double us = (processor_us() - begin) / kBatch;
    bare.synchronize();
    return us;
  };
  return in_turn(
      {{"engine_us", [&](double seconds) { return median(repeated(seconds, engine_us)); }},
       {"launch_us", [&](double seconds) { return median(repeated(seconds, launch_us)); }}},
      question);
}

Json latency_arm(const Json& question) {
  const engine::TrainerOptions options = options_of(question, question.at("stages"));
  BareStep forward(options, BareWork::forward);
  double tail = 0, bare_tail = 0;
  const auto noted = [](const std::vector<double>& ms, double& last_tail) {
    last_tail = engine::quantile(ms, 0.999) / median(ms);
    return median(ms);
  };
  const auto engine_ms = [&](double seconds) {
    engine::Trainer trainer(options);
    LoneFeed feed(trainer.options().target_elements(), options.devices[0], seconds,
                  2 * options.stages);
    trainer.run(feed, &feed);
    return noted(feed.ms(), tail);
  };
  return in_turn(
      {{"engine_ms", engine_ms},
       {"bare_ms",
        [&](double seconds) { return noted(lone_launches_ms(forward, seconds), bare_tail); }},
       {"tail", [&](double) { return tail; }},
       {"bare_tail", [&](double) { return bare_tail; }}},
      question);
}

Json profile_arm(const Json& question) {
  const engine::TrainerOptions options = options_of(question, 1);
  BareStep alone(options, BareWork::compute);
  const auto modules_ms = [&](double) {
    const engine::plan::Profile profile =
        engine::measure_profile(options, {.device = options.devices[0], .recorded = true});
    double ms = 0;
    for (const engine::plan::ModuleProfile& module : profile.modules) ms += module.ms().total();
    return ms;
  };
  return in_turn({{"modules_ms", modules_ms},
                  {"step_ms", [&](double seconds) { return back_to_back_ms(alone, seconds); }}},
                 question);
}

Json kernels_arm(const Json& question) {
  capture::use_repeatable_kernels();
  Json operations = Json::array();
  const auto stages = engine::stage_operations(options_of(question, 1), /*rounds=*/5);
  for (const capture::OperationInfo& o : stages[0]) {
    operations.push_back({{"name", o.name},
                          {"kernel", o.kernel},
                          {"us", double(o.best_ns) / 1e3},
                          {"flops", o.flops},
                          {"bytes", o.bytes}});
  }
  return {{"operations", operations}};
}

}  // namespace

Json answer(const Json& question) {
  static const std::map<std::string, Arm> arms = {
      {"step", step_arm},
      {"stages", stages_arm},
      {"processor time", processor_time_arm},
      {"latency", latency_arm},
      {"profile", profile_arm},
      {"kernels", kernels_arm},
      {"provenance", [](const Json&) { return app::provenance(1); }}};
  try {
    return arms.at(question.at("arm"))(question);
  } catch (const std::exception& error) {
    const std::string text = error.what();  // LibTorch appends its source position
    return {{"error", text.substr(0, text.find('\n'))}};
  }
}

}  // namespace millrace::bench
