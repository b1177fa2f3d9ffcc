#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <future>
#include <latch>

#include "capture/stage_step.h"
#include "engine/format.h"
#include "engine/monitor/clock.h"
#include "engine/monitor/median.h"
#include "engine/pipeline/perform.h"
#include "engine/pipeline/pinning.h"
#include "engine/trainer/profiler.h"

namespace millrace::engine {
namespace {

constexpr int kLeastRounds = 3;  ///< least number of a worker's periods to measure

/// A stage by itself: its step, and buffers that no neighbour accesses.
struct Bench {
  /// `activations` and `gradients`: the neighbours' messages; undefined at the ends of the network.
  Bench(stages::Stage stage, std::unique_ptr<capture::Backend> backend, const Schedule& schedule,
        const at::Tensor& sample, const at::Tensor& target, const stages::Tensors& activations,
        const stages::Tensors& gradients)
      : samples(schedule.slots(), sample.sizes(), target.sizes()),
        up(schedule.slots(), schedule.slots(), schedule.slots()),
        down(schedule.slots(), schedule.slots(), schedule.slots()),
        range(stage.range()),
        step(std::move(stage), std::move(backend), at::kCPU, samples, range.first ? nullptr : &up,
             range.last ? nullptr : &down) {
    for (int slot = 0; slot < schedule.slots(); ++slot) {
      samples.input[slot].copy_(sample);
      samples.target[slot].copy_(target);
      for (const at::Tensor& one : activations) up.activations.tensors[slot].push_back(one.clone());
      for (const at::Tensor& one : gradients) down.gradients.tensors[slot].push_back(one.clone());
    }
  }

  capture::SampleBuffers samples;
  capture::Boundary up, down;
  const stages::StageRange range;
  capture::StageStep step;
};

/// [operation]: milliseconds of each run of the action.
using ActionTimes = std::array<std::vector<double>, std::size_t(Op::update) + 1>;

/// Runs a worker's program for `seconds`, on the core of its number, once all workers of `ready`
/// have warmed up. [stage]
std::vector<ActionTimes> walk(const Schedule& schedule, int worker,
                              const std::vector<std::unique_ptr<Bench>>& benches, double seconds,
                              std::latch& ready) {
  pin_this_thread(worker);
  const Program& program = schedule.workers[worker];
  const Lowering lowering(schedule);
  const auto act = [&](const Action& action) {
    perform(benches[action.stage]->step, lowering(worker, action), schedule.slots());
  };
  // The first round touches all memory for the first time.
  const auto warm = std::int64_t(program.prologue.size() + program.period.size());
  std::int64_t at = 0;
  try {
    for (const int stage : stages_of(program)) benches[stage]->step.prepare();
    for (; at < warm; ++at) act(program.at(at));
  } catch (...) {
    ready.count_down();  // lets the others go on
    throw;
  }
  ready.arrive_and_wait();
  std::vector<ActionTimes> times(schedule.stages);
  const auto least = warm + std::int64_t(kLeastRounds * program.period.size());
  const double end = now_ms() + 1e3 * seconds;
  for (; at < least || now_ms() < end; ++at) {
    const Action action = program.at(at);
    times[action.stage][std::size_t(action.op)].push_back(ms_of([&] { act(action); }));
  }
  return times;
}

plan::StepCosts costs_of(const ActionTimes& times) {
  const auto ms = [&](Op op) { return median(times[std::size_t(op)]); };
  return {.forward = ms(Op::forward),
          .input_gradient = ms(Op::backward_input),
          .weight_gradient = ms(Op::backward_local) + ms(Op::backward) + ms(Op::backward_weight),
          .update = ms(Op::update)};
}

/// A bench for each stage; records the bytes that it holds and sends.
std::vector<std::unique_ptr<Bench>> make_benches(const TrainerOptions& options,
                                                 const Schedule& schedule,
                                                 std::vector<plan::StageCosts>& costs) {
  std::vector<stages::Stage> built = build_stages(options, schedule);
  const at::Tensor sample = at::rand(options.sample.sizes());
  const at::Tensor target = at::rand(options.network->output().sizes());
  std::vector<std::unique_ptr<Bench>> benches;
  auto backends = make_backends(options, schedule.stages, records_any(options));
  stages::Tensors arriving = {sample};
  for (int stage = 0; stage < schedule.stages; ++stage) {
    plan::StepBytes& bytes = costs[stage].bytes;
    bytes.weight = double(built[stage].weight_bytes());
    bytes.state = double(built[stage].optimizer_bytes());
    const stages::Tensors leaving = built[stage].forward(arriving, target).outputs;
    stages::Tensors gradients;
    for (const at::Tensor& output : leaving) {
      bytes.activation += double(output.nbytes());
      gradients.push_back(at::full_like(output, 1e-3));
    }
    bytes.gradient = bytes.activation;
    benches.push_back(std::make_unique<Bench>(std::move(built[stage]), std::move(backends[stage]),
                                              schedule, sample, target, arriving, gradients));
    arriving = leaving;
  }
  return benches;
}

}  // namespace

std::vector<plan::StageCosts> measure_stages(const TrainerOptions& options, double seconds) {
  const Schedule schedule = schedule_to_run(options);
  require_that(schedule.replicas.empty(), "stages with replicas are not measured");
  std::vector<plan::StageCosts> costs(schedule.stages);
  std::vector<std::unique_ptr<Bench>> benches = make_benches(options, schedule, costs);
  std::vector<capture::Step*> steps;
  for (const auto& bench : benches) steps.push_back(&bench->step);
  capture_steps(schedule, steps);
  const int workers = int(schedule.workers.size());
  for (int begin = 0; begin < workers; begin += usable_cores()) {
    const int end = std::min(begin + usable_cores(), workers);
    std::latch ready(end - begin);
    std::vector<std::future<std::vector<ActionTimes>>> threads;
    for (int worker = begin; worker < end; ++worker) {
      threads.push_back(std::async(std::launch::async, [&, worker] {
        return walk(schedule, worker, benches, seconds, ready);
      }));
    }
    for (int worker = begin; worker < end; ++worker) {
      const std::vector<ActionTimes> times = threads[worker - begin].get();
      for (const int stage : stages_of(schedule.workers[worker]))
        costs[stage].ms = costs_of(times[stage]);
    }
  }
  return costs;
}

}  // namespace millrace::engine
