#include "engine/trainer/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "capture/devices.h"
#include "capture/plain_errors.h"
#include "capture/ranges.h"
#include "engine/pipeline/perform.h"
#include "engine/pipeline/pinning.h"
#include "engine/plan/balance.h"
#include "engine/schedule/launch_groups.h"
#include "engine/schedule/verifier.h"
#include "engine/trainer/operations.h"
#include "engine/trainer/profiler.h"
#include "engine/trainer/rank_wires.h"
#include "engine/trainer/tensor_freight.h"
#include "engine/trainer/trainer_sample.h"

namespace millrace::engine {
namespace {

/// MKL chooses its kernels at its first call. When two workers' first calls coincide, one may get
/// another kernel, whose square roots differ in the last bit (seen about once in a thousand busy
/// starts). So the first call is here, alone.
void call_mkl_first() {
  const at::Tensor ones = at::ones({16, 16});
  at::mm(ones, ones.t()).add_(at::mm(ones.t(), ones)).sqrt_();
}

/// Fills in unset options: cut, threads, devices, weights.
TrainerOptions completed(TrainerOptions options) {
  at::set_num_threads(1);  // stages are the parallelism; workers inherit this
  call_mkl_first();
  const int modules = options.network->size();
  if (options.stages < 1 || options.stages > modules) {
    throw std::invalid_argument(std::to_string(options.stages) + " stages: the network has " +
                                std::to_string(modules) + " modules, so 1 to " +
                                std::to_string(modules));
  }
  require_threads(options);
  const bool balances = options.cut.empty() && options.stages > 1;
  const bool programs = runs_programs(options, 0);
  const bool measures = options.module_ms.empty() && (balances || options.may_recut);
  if (measures && programs) {
    options.module_ms = module_times_by_programs(options, 1);
  } else if (measures) {
    ProfilerOptions how;
    if (device_of(options, 0).is_cuda())
      how = {.device = options.devices.front(), .recorded = records_any(options)};
    const plan::Profile profile = measure_profile(options, how);
    for (const plan::ModuleProfile& module : profile.modules)
      options.module_ms.push_back(module.ms().total());
  }
  options.module_ms = cuttable(options, std::move(options.module_ms));
  if (!balance_threads(options) && balances)
    options.cut = balanced_cut(options.module_ms, options.stages);
  require_cut(options.cut, options.stages, modules);
  if (options.weights.empty())
    options.weights = stages::initial_state(*options.network, options.seed);
  return options;
}

/// A profiler range around each action, named as in a trace.
void name_for_profiler(PipelineOptions& options) {
  options.before_action = [first = std::move(options.before_action)](int worker, const Action& a) {
    if (first) first(worker, a);
    capture::push_range(action_text(a, true).c_str());
  };
  options.after_action = [last = std::move(options.after_action)](int worker, const Action& a) {
    capture::pop_range();
    if (last) last(worker, a);
  };
}

/// Waits for the work of a failed run: it uses memory that the caller may free now.
void wait_for(capture::Step& step) {
  try {
    step.synchronize();
  } catch (const std::exception&) {
    // A failed device has no work left.
  }
}

Schedule schedule_to_run(const TrainerOptions& options) {
  Schedule schedule = schedule_of(options);
  if (!records_any(options)) return schedule;
  schedule = for_recording(std::move(schedule));
  if (const std::optional<Fault> fault = verify(schedule))
    throw std::logic_error(fault->text(schedule.name));
  return schedule;
}

}  // namespace

Trainer::Trainer(TrainerOptions options)
    : options_(completed(std::move(options))),
      schedule_(schedule_to_run(options_)),
      recording_{records_any(options_)},
      monitor_(schedule_.replica_counts(), options_.fps),
      guard_(2 * schedule_.slots()),
      samples_(schedule_.slots(), options_.sample.sizes(),
               options_.target_is_input ? std::vector<std::int64_t>()
                                        : options_.network->output().sizes(),
               recording_.on, {options_.input_as_bytes, options_.target_as_bytes}),
      facts_elsewhere_(std::size_t(schedule_.stages)) {
  for (int slot = 0; slot < schedule_.slots(); ++slot)
    sample_in_.push_back(std::make_unique<TrainerSample>(samples_, slot, options_.context));
  samples_.late_target = options_.late_targets;
  require_correction(options_, schedule_);
  require_threads(options_);
  if (options_.devices.empty()) {
    const auto cores = place_stages({"cpu"}, int(schedule_.workers.size()), usable_cores(), 0,
                                    threads_of_workers(options_, schedule_));
    for (const int worker : workers_of_replicas(schedule_))
      options_.devices.push_back(cores[worker]);
  }
  if (int(options_.devices.size()) != schedule_.replica_ids()) {
    throw std::invalid_argument("pipeline.devices: " + std::to_string(options_.devices.size()) +
                                " devices, " + std::to_string(schedule_.replica_ids()) +
                                " replicas of stages to place");
  }
  devices_ = options_.devices;
  if (options_.exchange) check_ranks();
  const auto build_all = [&] { capture::with_plain_errors([&] { build(); }); };
  recording_.on ? record(build_all) : build_all();
}

Trainer::~Trainer() = default;

void Trainer::record(const std::function<void()>& work) {
  try {
    capture::with_plain_errors(work);
  } catch (const std::runtime_error& error) {
    if (options_.capture == Capture::graph || (wires_ && wires_->any()))
      throw std::runtime_error(std::string("pipeline.capture: recording failed: ") + error.what());
    {
      const std::lock_guard lock(cut_mutex_);
      recording_ = {false, error.what()};
    }
    options_.capture = Capture::eager;
    capture::with_plain_errors([&] { build(); });
  }
}

void Trainer::recut(const std::vector<int>& cut, stages::StateDict weights, double backed_off) {
  {
    const std::lock_guard lock(cut_mutex_);
    options_.cut = cut;
    options_.weights = std::move(weights);
  }
  build();
  monitor_.forget_times();
  for (const auto& step : steps_) {
    if (step) step->stage().set_backed_off(backed_off);
  }
}

double Trainer::backed_off() const {
  const auto here = std::ranges::find_if(steps_, [](const auto& step) { return step != nullptr; });
  return here == steps_.end() ? 1 : (*here)->stage().backed_off();
}

Trainer::Recording Trainer::recording() const {
  const std::lock_guard lock(cut_mutex_);
  return recording_;
}

std::vector<int> Trainer::cut() const {
  const std::lock_guard lock(cut_mutex_);
  return options_.cut;
}

Outcome Trainer::run(Feed& feed, Observer* observer, PipelineOptions options) {
  prepare();
  options_.weights.clear();  // the stages have theirs
  const std::vector<capture::Step*> steps = this->steps();
  Pipeline pipeline{.schedule = schedule_,
                    .steps = steps,
                    .monitor = monitor_,
                    .link_capacity = sets_.capacity,
                    .before = admitted_,
                    .guard = options_.guard ? &guard_ : nullptr,
                    .own_losses = options_.correction.kind == "local",
                    .late_targets = options_.late_targets};
  for (const Program& program : schedule_.workers) {
    const int replica_id = schedule_.replica_id(stages_of(program).front(), program.replica);
    const Device& device = options_.devices[replica_id];
    pipeline.cores.push_back(device.cuda ? -1 : device.index);
  }
  for (const auto& sample : sample_in_) pipeline.samples.push_back(sample.get());
  if (capture::profiler_attached()) name_for_profiler(options);
  const RankOptions ranks{options_.exchange,
                          freight_.get(),
                          options_.rank_of_worker,
                          runs_++,
                          [this] { return live_facts(); },
                          [this](std::string_view facts) { take_facts(facts); }};
  if (options_.exchange) pipeline.ranks = &ranks;
  Outcome outcome;
  try {
    capture::with_plain_errors([&] {
      if (wires_) wires_->connect();
      outcome = run_pipeline(pipeline, feed, observer, options);
      if (wires_) wires_->drain();
      if (options_.guard && guard_.status().astray) {
        for (capture::Step* step : steps) {
          if (!step) continue;
          step->roll_back();
          step->synchronize();
        }
      }
    });
  } catch (const RankLost&) {
    freight_->abandon();
    whole_ = false;
    options_.exchange->abandon();
    throw;
  } catch (...) {
    if (freight_) freight_->abandon();
    for (capture::Step* step : steps) {
      if (step) wait_for(*step);
    }
    if (options_.exchange) {  // every rank has failed, and rank 0 saves what there is
      whole_ = false;
      gather();
      whole_ = true;
    }
    throw;
  }
  admitted_ += outcome.admitted;
  if (options_.exchange) gather();
  return outcome;
}

std::vector<capture::Step*> Trainer::steps() const {
  std::vector<capture::Step*> all;
  for (const auto& step : steps_) all.push_back(step.get());
  return all;
}

void Trainer::prepare() {
  if (std::exchange(prepared_, true) || !recording_.on) return;
  record([&] { capture_steps(schedule_, steps(), sets_.capacity); });
}

}  // namespace millrace::engine
