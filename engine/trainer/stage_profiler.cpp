#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <future>
#include <latch>
#include <stdexcept>

#include "capture/stage_step.h"
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

/// A worker's stages, and its position in its program.
class Walk {
 public:
  /// `benches`: [stage].
  Walk(const Schedule& schedule, int worker, std::vector<std::unique_ptr<Bench>>& benches)
      : schedule_(schedule),
        program_(schedule.workers[worker]),
        worker_(worker),
        benches_(benches),
        times_(schedule.stages) {}

  void prepare() {
    for (const int stage : stages_of(program_)) bench(stage).prepare();
    // The first round touches all memory for the first time.
    warm_ = std::int64_t(program_.prologue.size() + program_.period.size());
    for (at_ = 0; at_ < warm_; ++at_) act(program_.at(at_));
  }

  void run(Clock::time_point until) {
    const auto least = warm_ + std::int64_t(kLeastRounds * program_.period.size());
    for (; at_ < least || Clock::now() < until; ++at_) {
      const Action action = program_.at(at_);
      const Clock::time_point start = Clock::now();
      act(action);
      times_[action.stage][std::size_t(action.op)].push_back(
          std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
  }

  plan::StepCosts costs(int stage) const {
    const auto ms = [&](Op op) { return median(times_[stage][std::size_t(op)]); };
    return {.forward = ms(Op::forward),
            .input_gradient = ms(Op::backward_input),
            .weight_gradient = ms(Op::backward_local) + ms(Op::backward) + ms(Op::backward_weight),
            .update = ms(Op::update)};
  }

 private:
  capture::StageStep& bench(int stage) { return benches_[stage]->step; }

  void act(const Action& action) {
    perform(bench(action.stage), lowering_(worker_, action), schedule_.slots());
  }

  const Schedule& schedule_;
  const Program& program_;
  int worker_;
  std::vector<std::unique_ptr<Bench>>& benches_;
  Lowering lowering_{schedule_};
  std::vector<ActionTimes> times_;  ///< [stage]
  std::int64_t at_ = 0, warm_ = 0;
};

/// Runs `walks` from `begin` to `end` at once, each on the core of its number.
void walk(std::vector<Walk>& walks, std::size_t begin, std::size_t end, double seconds) {
  std::latch ready(std::ptrdiff_t(end - begin));
  std::vector<std::future<void>> threads;
  for (std::size_t worker = begin; worker < end; ++worker) {
    threads.push_back(std::async(std::launch::async, [&, worker] {
      pin_this_thread(int(worker));
      try {
        walks[worker].prepare();
      } catch (...) {
        ready.count_down();  // lets the others go on
        throw;
      }
      ready.arrive_and_wait();
      walks[worker].run(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(seconds)));
    }));
  }
  for (auto& thread : threads) thread.get();
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
  if (!schedule.replicas.empty())
    throw std::invalid_argument("stages with replicas are not measured");
  std::vector<plan::StageCosts> costs(schedule.stages);
  std::vector<std::unique_ptr<Bench>> benches = make_benches(options, schedule, costs);
  std::vector<capture::Step*> steps;
  for (const auto& bench : benches) steps.push_back(&bench->step);
  capture_steps(schedule, steps);
  std::vector<Walk> walks;
  for (int worker = 0; worker < int(schedule.workers.size()); ++worker)
    walks.emplace_back(schedule, worker, benches);
  const auto cores = std::size_t(usable_cores());
  for (std::size_t begin = 0; begin < walks.size(); begin += cores)
    walk(walks, begin, std::min(begin + cores, walks.size()), seconds);
  for (std::size_t worker = 0; worker < walks.size(); ++worker) {
    for (const int stage : stages_of(schedule.workers[worker]))
      costs[stage].ms = walks[worker].costs(stage);
  }
  return costs;
}

}  // namespace millrace::engine
