#include "engine/trainer/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "capture/devices.h"
#include "capture/plain_errors.h"
#include "capture/ranges.h"
#include "engine/format.h"
#include "engine/pipeline/perform.h"
#include "engine/pipeline/pinning.h"
#include "engine/plan/balance.h"
#include "engine/trainer/profiler.h"
#include "engine/trainer/rank_wires.h"
#include "engine/trainer/tensor_freight.h"
#include "engine/trainer/trainer_sample.h"
#include "stages/loss.h"
#include "stages/parameters.h"
#include "stages/safetensors.h"

namespace millrace::engine {
namespace {

using About = Exchange::About;

/// MKL chooses its kernels at its first call. When two workers' first calls coincide, one may get
/// another kernel, whose square roots differ in the last bit (seen about once in a thousand busy
/// starts). So the first call is here, alone.
void call_mkl_first() {
  const at::Tensor ones = at::ones({16, 16});
  at::mm(ones, ones.t()).add_(at::mm(ones.t(), ones)).sqrt_();
}

/// Milliseconds of each module's step program; empty if one can't be recorded, as the run will say.
std::vector<double> recorded_module_times(const TrainerOptions& options) {
  try {
    return module_times_by_programs(options, 1);
  } catch (const std::exception&) {
    return {};
  }
}

std::vector<double> profiled_module_times(const TrainerOptions& options) {
  ProfilerOptions how;
  if (device_of(options, 0).is_cuda())
    how = {.device = options.devices.front(), .recorded = records_any(options)};
  std::vector<double> ms;
  for (const plan::ModuleProfile& module : measure_profile(options, how).modules)
    ms.push_back(module.ms().total());
  return ms;
}

/// Fills in unset options: cut, threads, devices, weights.
TrainerOptions completed(TrainerOptions options) {
  at::set_num_threads(1);  // stages are the parallelism; workers inherit this
  call_mkl_first();
  const int modules = options.network->size();
  require_that(options.stages >= 1 && options.stages <= modules,
               "%d stages: the network has %d modules, so 1 to %d", options.stages, modules,
               modules);
  require_threads(options);
  const bool balances = options.cut.empty() && options.stages > 1;
  const bool measures = options.module_ms.empty() && (balances || options.may_recut);
  const bool programs = measures && runs_programs(options, 0);
  if (programs) options.module_ms = recorded_module_times(options);
  const bool failed = programs && options.module_ms.empty();
  if (measures && options.module_ms.empty()) options.module_ms = profiled_module_times(options);
  options.module_ms = cuttable(options, std::move(options.module_ms));
  std::map<int, std::vector<double>> costs;
  if (programs) costs[1] = options.module_ms;
  if (failed) std::replace(options.threads.begin(), options.threads.end(), 0, 1);
  if ((failed || !balance_threads(options, std::move(costs))) && balances)
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

Exchange::Letter await_letter(Exchange& exchange) {
  std::optional<Exchange::Letter> letter;
  await_ranks(exchange, [&] { return (letter = exchange.letter(About::state)).has_value(); });
  return *letter;
}

void post_to_all(Exchange& exchange, const std::string& text) {
  {
    const std::lock_guard lock(exchange.mutex());
    exchange.post_to_others(About::state, text);
  }
  await_ranks(exchange, [&] { return exchange.all_posted(); });
}

}  // namespace

Trainer::Trainer(TrainerOptions options)
    : options_(completed(std::move(options))),
      schedule_(schedule_to_run(options_)),
      recording_{records_any(options_)},
      monitor_(schedule_.replica_counts(), options_.fps, schedule_.group),
      guard_(2 * schedule_.slots(), stages::Loss(options_.loss).scores()),
      samples_(schedule_.slots(), options_.sample.sizes(),
               options_.target_is_input ? std::vector<std::int64_t>()
                                        : options_.network->output().sizes(),
               recording_.on, {options_.input_as_bytes, options_.target_as_bytes}),
      facts_elsewhere_(std::size_t(schedule_.stages)),
      dead_elsewhere_(facts_elsewhere_.size()) {
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
  require_that(int(options_.devices.size()) == schedule_.replica_ids(),
               "pipeline.devices: %zu devices, %d replicas of stages to place",
               options_.devices.size(), schedule_.replica_ids());
  devices_ = options_.devices;
  if (options_.exchange) check_ranks();
  with_eager_fallback([this] { build(); });
}

Trainer::~Trainer() = default;

void Trainer::check_ranks() {
  Exchange& exchange = *options_.exchange;
  std::vector<int>& ranks = options_.rank_of_worker;
  if (ranks.empty()) ranks = deal_workers(int(schedule_.workers.size()), exchange.ranks());
  require_ranks(schedule_, ranks, exchange.ranks());
  require_that(!options_.late_targets, "ranks have no targets that come late");
  // Data to and from other ranks goes through host memory, as for a core.
  for (std::size_t replica_id = 0; replica_id < options_.devices.size(); ++replica_id) {
    if (!here(int(replica_id))) options_.devices[replica_id] = {};
  }
  wires_ = std::make_unique<RankWires>(options_, schedule_, devices_);
  freight_ = std::make_unique<TensorFreight>(
      options_, samples_, boundaries_, [this](int stage) { return step_of(stage); }, steps_);
}

void Trainer::build() {
  const std::lock_guard lock(cut_mutex_);
  prepared_ = false;
  steps_ = std::vector<std::unique_ptr<capture::StageStep>>(std::size_t(schedule_.replica_ids()));
  if (wires_) wires_->forget();
  boundaries_.clear();
  auto backends = make_backends(options_, schedule_.replica_ids(), recording_.on,
                                [this](int replica_id) { return here(replica_id); });
  const auto backend_of = [&](int stage) {
    const auto first = backends.begin() + schedule_.replica_id(stage, 0);
    const auto found = std::find_if(first, first + schedule_.replicas_of(stage),
                                    [](const auto& backend) { return backend != nullptr; });
    return found == first + schedule_.replicas_of(stage) ? nullptr : found->get();
  };
  // Messages to other ranks go by slot; work that a device has queued may still read.
  const bool whole = options_.exchange || std::ranges::any_of(backends, [](const auto& backend) {
                       return backend->defers();
                     });
  sets_ = whole ? sets_by_slot(schedule_) : tensor_sets(schedule_);
  for (int i = 0; i + 1 < options_.stages; ++i) {
    boundaries_.push_back(std::make_unique<capture::Boundary>(
        schedule_.slots(), sets_.activations[i], sets_.gradients[i]));
    join(i, backend_of(i), backend_of(i + 1));
  }
  const Lowering lowering(schedule_);
  std::vector<stages::Stage*> stages(steps_.size());
  for (std::size_t replica_id = 0; replica_id < steps_.size(); ++replica_id) {
    if (!backends[replica_id]) continue;
    const int i = lowering.stage(int(replica_id));
    const c10::Device place = device_of(options_, int(replica_id));
    if (place.is_cuda()) capture::use_repeatable_kernels();
    steps_[replica_id] = std::make_unique<capture::StageStep>(
        build_stage(options_, schedule_, i, int(replica_id)), std::move(backends[replica_id]),
        place, samples_, i > 0 ? boundaries_[i - 1].get() : nullptr,
        lowering.last(i) ? nullptr : boundaries_[i].get(), sets_.inner[i], sets_.stored[i]);
    stages[replica_id] = &steps_[replica_id]->stage();
  }
  tie_replicas(schedule_, stages,
               [this](int from, int to) { return freight_->gradients_of(from, to); });
}

void Trainer::join(int stage, const capture::Backend* above, const capture::Backend* below) {
  if (wires_ && wires_->over_cut(stage)) return wires_->lay(stage, *boundaries_[stage]);
  const c10::Device up = device_of(options_, schedule_.replica_id(stage, 0)),
                    down = device_of(options_, schedule_.replica_id(stage + 1, 0));
  const auto set = [&](capture::BoundaryBuffers& buffers, const capture::Backend* writer,
                       const capture::Backend* reader, c10::Device from, c10::Device to) {
    buffers.on_host = !capture::reads(to, from);
    // Data from another rank is written as by an eager stage.
    buffers.fixed = reader && reader->records() && !(writer && writer->records());
    buffers.to_host = writer && writer->defers() && !(reader && reader->defers());
  };
  capture::Boundary& boundary = *boundaries_[stage];
  set(boundary.activations, above, below, up, down);
  set(boundary.gradients, below, above, down, up);
  const stages::Network& network = *options_.network;
  // The layout that programs leave, and kernels prefer.
  const bool channels_last = runs_programs(options_, schedule_.replica_id(stage, 0)) &&
                             runs_programs(options_, schedule_.replica_id(stage + 1, 0));
  for (capture::BoundaryBuffers* buffers : {&boundary.activations, &boundary.gradients}) {
    for (stages::Tensors& set : buffers->tensors) {
      if (!buffers->fixed) break;
      for (const int source : network.crossing(options_.cut[stage])) {
        const at::Tensor zeros = capture::pinned_zeros(network.shape(source).sizes());
        set.push_back(channels_last ? zeros.contiguous(at::MemoryFormat::ChannelsLast) : zeros);
      }
    }
  }
}

void Trainer::with_eager_fallback(const std::function<void()>& work) {
  try {
    capture::with_plain_errors(work);
  } catch (const std::runtime_error& error) {
    if (!recording_.on) throw;
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

void Trainer::prepare() {
  if (std::exchange(prepared_, true) || !recording_.on) return;
  with_eager_fallback([&] { capture_steps(schedule_, steps(), sets_.capacity); });
}

std::vector<capture::Step*> Trainer::steps() const {
  std::vector<capture::Step*> all;
  for (const auto& step : steps_) all.push_back(step.get());
  return all;
}

Outcome Trainer::run(Feed& feed, Observer* observer, PipelineOptions options) {
  prepare();
  options_.weights.clear();  // the stages have theirs
  Pipeline pipeline{.schedule = schedule_,
                    .steps = steps(),
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
                          [this] { return dead_here(); },
                          [this](std::string_view counts) { take_dead(counts); }};
  if (options_.exchange) pipeline.ranks = &ranks;
  Outcome outcome;
  try {
    capture::with_plain_errors([&] {
      if (wires_) wires_->connect();
      outcome = run_pipeline(pipeline, feed, observer, options);
      if (wires_) wires_->drain();
      if (options_.guard && guard_.end()) {
        for (const auto& step : steps_) {
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
    for (const auto& step : steps_) {
      if (step) step->finish();
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

void Trainer::recut(const std::vector<int>& cut) {
  require_cut(cut, options_.stages, options_.network->size());
  require_correction(options_, schedule_, cut);
  stages::StateDict weights = checkpoint();
  const double backed_off = first_here()->stage().backed_off();
  if (options_.exchange) {
    ByteWriter letter;
    letter.put('C').put(backed_off).put(cut).raw(stages::to_safetensors(weights));
    post_to_all(*options_.exchange, letter.bytes());
  }
  recut(cut, std::move(weights), backed_off);
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

bool Trainer::follow() {
  const Exchange::Letter letter = await_letter(*options_.exchange);
  ByteReader bytes(letter.text);
  if (bytes.get<char>() == 'E') return false;
  const double backed_off = bytes.get<double>();
  const std::vector<int> cut = bytes.list<int>();
  recut(cut, stages::from_safetensors(std::string(bytes.rest())), backed_off);
  return true;
}

void Trainer::dismiss_ranks() {
  if (options_.exchange) post_to_all(*options_.exchange, "E");
}

void Trainer::gather() {
  Exchange& exchange = *options_.exchange;
  if (exchange.rank() != 0) {
    ByteWriter text;
    for (int stage = 0; stage < schedule_.stages; ++stage) {
      // Replicas have equal weights: the first reports.
      if (!steps_[std::size_t(schedule_.replica_id(stage, 0))]) continue;
      const StageFacts made = facts(stage);
      text.put(stage).put(made.memory).put(made.recorded).put(made.left);
      text.put(stages::to_safetensors(checkpoint(stage)));
    }
    {
      const std::lock_guard lock(exchange.mutex());
      exchange.post(0, About::state, text.bytes());
    }
    return await_ranks(exchange, [&] { return exchange.all_posted(); });
  }
  learned_elsewhere_.clear();
  for (int waited = exchange.ranks() - 1; waited > 0; --waited) {
    const Exchange::Letter letter = await_letter(exchange);
    const std::lock_guard lock(cut_mutex_);
    for (ByteReader bytes(letter.text); !bytes.empty();) {
      const int stage = bytes.get<int>();
      StageFacts& known = facts_elsewhere_[std::size_t(stage)];
      known.memory = bytes.get<StageMemory>();
      known.recorded = bytes.get<bool>();
      known.left = bytes.list<std::string>();
      learned_elsewhere_[stage] = stages::from_safetensors(std::string(bytes.text()));
    }
  }
}

std::string Trainer::dead_here() const {
  ByteWriter all;
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    if (steps_[std::size_t(schedule_.replica_id(stage, 0))]) all.put(stage).put(dead_units(stage));
  }
  return all.bytes();
}

void Trainer::take_dead(std::string_view counts) {
  const std::lock_guard lock(cut_mutex_);
  for (ByteReader bytes(counts); !bytes.empty();) {
    const int stage = bytes.get<int>();
    dead_elsewhere_[std::size_t(stage)] = bytes.get<DeadUnits>();
  }
}

bool Trainer::here(int replica_id) const {
  return !options_.exchange ||
         rank_of(options_, schedule_, replica_id) == options_.exchange->rank();
}

capture::StageStep* Trainer::step_of(int stage) const {
  for (int replica = 0; replica < schedule_.replicas_of(stage); ++replica) {
    const auto& step = steps_[std::size_t(schedule_.replica_id(stage, replica))];
    if (step) return step.get();
  }
  return nullptr;
}

capture::StageStep* Trainer::first_here() const {
  for (const auto& step : steps_) {
    if (step) return step.get();
  }
  return nullptr;
}

TrainerNow Trainer::now() const {
  const std::lock_guard lock(cut_mutex_);
  TrainerNow now{.cut = options_.cut, .recording = recording_};
  if (const capture::StageStep* const step = first_here()) now.rate = step->rate_in_force();
  for (int stage = 0; stage < schedule_.stages; ++stage)
    now.dead_units.push_back(dead_units(stage));
  return now;
}

DeadUnits Trainer::dead_units(int stage) const {
  const capture::StageStep* const step = step_of(stage);
  if (!step) return dead_elsewhere_[std::size_t(stage)];
  const stages::DeadUnits& counted = step->dead_units();
  const bool looks = device_of(options_, schedule_.replica_id(stage, 0)).is_cpu();
  return {counted.dead(), looks ? counted.units() : 0};
}

std::vector<StageFacts> Trainer::facts() const {
  std::vector<StageFacts> all;
  for (int stage = 0; stage < schedule_.stages; ++stage) all.push_back(facts(stage));
  return all;
}

StageFacts Trainer::facts(int stage) const {
  const capture::StageStep* const step = step_of(stage);
  if (!step) return facts_elsewhere_[std::size_t(stage)];
  const std::int64_t weights = step->stage().weight_bytes();
  const stages::StageRange range = step->stage().range();
  std::int64_t samples = 0;
  const auto add = [&](const std::vector<at::Tensor>& slots) {
    for (const at::Tensor& slot : slots)
      samples += slot.defined() ? std::int64_t(slot.nbytes()) : 0;
  };
  if (range.first) add(samples_.input);
  if (range.last && !samples_.target_is_input()) add(samples_.target);
  if (range.last) add(samples_.prediction);
  return {.memory = {.weights = weights,
                     .stashes = weights * (schedule_.versions_of(stage) - 1),
                     .optimizer = step->stage().optimizer_bytes(),
                     .gradients = step->stage().gradient_bytes(),
                     .activations = step->peak_activation_bytes(),
                     .cuts = step->cut_bytes(),
                     .scratch = step->scratch_bytes(),
                     .samples = samples},
          .recorded = step->records(),
          .left = left_to_libtorch(step->operations())};
}

stages::StateDict Trainer::state() const {
  stages::StateDict all = checkpoint();
  std::erase_if(all, [](const auto& entry) { return entry.first.starts_with("optimizer."); });
  return all;
}

stages::StateDict Trainer::checkpoint() const {
  stages::StateDict all;
  for (int stage = 0; stage < schedule_.stages; ++stage) {
    const auto elsewhere = learned_elsewhere_.find(stage);
    if (step_of(stage)) {
      for (auto& entry : checkpoint(stage)) all.push_back(std::move(entry));
    } else if (elsewhere != learned_elsewhere_.end()) {
      all.insert(all.end(), elsewhere->second.begin(), elsewhere->second.end());
    }
  }
  if (!options_.exchange || options_.exchange->rank() != 0 || !learned_elsewhere_.empty())
    return all;
  // The other ranks have learned nothing yet.
  std::set<std::string> names;
  for (const auto& entry : all) names.insert(entry.first);
  for (const auto& entry : options_.weights) {
    if (!names.contains(entry.first)) all.push_back(entry);
  }
  return all;
}

stages::StateDict Trainer::checkpoint(int stage) const {
  return capture::with_plain_errors([&] { return idle_stage(stage).checkpoint(); });
}

void Trainer::set_fixed(int stage, const stages::StateDict& weights) {
  capture::with_plain_errors([&] {
    idle_stage(stage).set_fixed(weights);
    step_of(stage)->synchronize();
  });
}

stages::Stage& Trainer::idle_stage(int stage) const {
  capture::StageStep& step = *step_of(stage);
  step.launch();
  step.synchronize();
  return step.stage();
}

stages::StateDict share_of(const Trainer& trainer, int rank) {
  const TrainerOptions& options = trainer.options();
  const Schedule& schedule = trainer.schedule();
  std::set<std::string> mine;
  for (std::size_t worker = 0; worker < schedule.workers.size(); ++worker) {
    if (options.rank_of_worker[worker] != rank) continue;
    for (const int stage : stages_of(schedule.workers[worker])) {
      const stages::StageRange range = range_of(options, stage);
      for (const auto& spec : options.network->parameters(range.begin, range.end))
        mine.insert(spec.name);
    }
  }
  stages::StateDict share = trainer.checkpoint();
  std::erase_if(share, [&](const auto& entry) {
    const std::string name = stages::parameter_of(entry.first);
    return !name.empty() && !mine.contains(name);
  });
  return share;
}

}  // namespace millrace::engine
