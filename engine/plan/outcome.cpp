#include "engine/plan/plan.h"

#include <algorithm>

#include "engine/schedule/registry.h"

namespace millrace::engine::plan {
namespace {

/// A worker's time per sample. Interleaved workers have several stages.
struct WorkerTime {
  double step = 0;      ///< on one replica: forward, backward, messages that do not overlap
  double turn = 0;      ///< step / replicas: time between samples
  double residue = 0;   ///< what zb-h1 leaves of the step in fill and drain
  double flushing = 0;  ///< update and all-reduce, once per minibatch
};

std::vector<WorkerTime> worker_times(const CostModel& model, const Cut& cut) {
  const int chunks = model.method().virtual_stages;
  const std::size_t count = cut.stages.size() / chunks;
  std::vector<WorkerTime> workers(count);
  for (std::size_t i = 0; i < cut.stages.size(); ++i) {
    const Stage& stage = cut.stages[i];
    const StageTime time = model.time(stage);
    const StepCosts ms = model.step(stage.begin, stage.end);
    const double speed = model.speedup(stage.threads);
    const double again = model.method().recompute ? ms.forward : 0.0;
    double step = (ms.forward + again + ms.backward()) / speed;
    if (model.machine().overlap == Overlap::none) {
      step += (time.arrive + time.leave) * stage.replicas;
    }
    WorkerTime& worker = workers[i % count];
    worker.step += step;
    worker.turn += step / stage.replicas;
    worker.residue += step - 2 * ms.weight_gradient / speed;
    worker.flushing += ms.update / speed + time.agree * model.group(stage.replicas);
  }
  return workers;
}

/// A sample's messages there and back where they overlap with computing; else step has them.
double way_ms(const CostModel& model, const Cut& cut) {
  double ms = 0;
  if (model.machine().overlap == Overlap::none) return ms;
  for (const Stage& stage : cut.stages) ms += model.arrive_ms(stage);
  return ms;
}

void rate_flushing(const CostModel& model, const Cut& cut, Outcome& outcome) {
  const Method& method = model.method();
  double slowest = 0, longest = 0, all = 0, flushing = 0;
  for (const WorkerTime& worker : worker_times(model, cut)) {
    const bool zero_bubble = method.schedule == "zb-h1";
    const double fills = zero_bubble ? std::max(0.0, worker.residue) : worker.step;
    slowest = std::max(slowest, worker.turn);
    longest = std::max(longest, fills);
    all += fills;
    flushing = std::max(flushing, worker.flushing);
  }
  const double fill = (all - longest) / method.virtual_stages;
  const double m = method.microbatches;
  outcome.bubble = slowest > 0 ? fill / (m * slowest) : 0;
  outcome.sample_ms = (m * slowest + fill + way_ms(model, cut) + flushing) / (m * method.copies);
}

/// A replica passes on a sample every `replicas` periods; the last stage predicts after forward.
double latency_of(const CostModel& model, const Cut& cut) {
  const std::string& schedule = model.method().schedule;
  const bool alone = schedule == "sequential" || schedule == "gpipe";  // no backward in between
  double ms = 0;
  for (const Stage& stage : cut.stages) {
    if (alone) ms += model.activation_ms(stage);
    const double forward =
        model.step(stage.begin, stage.end).forward / model.speedup(stage.threads);
    const bool last = &stage == &cut.stages.back();
    ms += alone || last ? forward : stage.replicas * cut.period_ms;
  }
  return ms;
}

/// A replica counts as a stage: it adds a sample between itself and the loss. So does a copy.
std::vector<std::int64_t> ages_of(const CostModel& model, const Cut& cut) {
  const Method& method = model.method();
  int deep = 0;
  for (const Stage& stage : cut.stages) deep += stage.replicas * method.copies;
  std::vector<std::int64_t> straight(deep, 0), ages;
  if (!model.entry().flushes) {
    straight = gradient_ages(make_schedule(
        method.schedule,
        {.stages = deep, .microbatches = std::max(method.microbatches * method.copies, deep)}));
  }
  int at = 0;
  for (const Stage& stage : cut.stages) {
    ages.push_back(straight[at]);
    at += stage.replicas * method.copies;
  }
  return ages;
}

/// The most bytes of activations that a worker of an interleaved schedule keeps at a time, if a
/// sample's take `stash` in each stage, and inputs, kept when recomputing, `input`.
double most_kept(const Method& method, const std::vector<double>& stash,
                 const std::vector<double>& input, int worker) {
  const Schedule schedule = make_schedule(method.schedule, {.stages = int(stash.size()),
                                                            .microbatches = method.microbatches,
                                                            .virtual_stages = method.virtual_stages,
                                                            .recompute = method.recompute});
  const Program& program = schedule.workers[worker];
  const auto end = std::int64_t(program.prologue.size() + program.period.size());
  double kept = 0, most = 0;
  for (std::int64_t at = 0; at < end; ++at) {
    const Action a = program.at(at);
    if (a.op == Op::forward) kept += method.recompute ? input[a.stage] : stash[a.stage];
    if (a.op == Op::recompute) kept += stash[a.stage];
    most = std::max(most, kept);
    if (a.op == Op::backward) kept -= stash[a.stage] + (method.recompute ? input[a.stage] : 0);
  }
  return most;
}

std::vector<StageMemory> memory_of(const CostModel& model, const Cut& cut) {
  std::vector<StageMemory> list;
  for (const Stage& stage : cut.stages) list.push_back(model.memory(stage, int(cut.stages.size())));
  const Method& method = model.method();
  if (!model.entry().virtual_stages) return list;
  // A worker's chunks share a device.
  const int workers = int(list.size()) / method.virtual_stages;
  std::vector<double> stash, input;
  for (int chunk = 0; chunk < int(list.size()); ++chunk) {
    input.push_back(model.input_bytes(cut.stages[chunk].begin, 1));
    stash.push_back(list[chunk].stash - input.back());
    if (chunk < workers) continue;
    list[chunk % workers].weights += list[chunk].weights;
    list[chunk % workers].optimizer += list[chunk].optimizer;
  }
  list.resize(workers);
  for (int worker = 0; worker < workers; ++worker) {
    list[worker].samples = chunks_kept(worker, workers, method.virtual_stages, method.microbatches);
    list[worker].stash = most_kept(method, stash, input, worker);
  }
  return list;
}

}  // namespace

int chunks_kept(int worker, int workers, int virtual_stages, int microbatches) {
  const int warm_up = 2 * (workers - worker - 1) + (virtual_stages - 1) * workers;
  return std::min(warm_up + 1, virtual_stages * microbatches);
}

Outcome outcome_of(const Profile& profile, const CostModel& model, const Cut& cut) {
  Outcome outcome;
  const Method& method = model.method();
  outcome.T_ms = model.step(0, model.modules()).total();
  if (model.entry().flushes) {
    rate_flushing(model, cut, outcome);
  } else if (method.schedule == "sequential") {
    for (const Stage& stage : cut.stages) {
      const StepCosts ms = model.step(stage.begin, stage.end);
      const double again = method.recompute ? ms.forward : 0;
      outcome.sample_ms +=
          (ms.total() + again) / model.speedup(stage.threads) + model.arrive_ms(stage);
    }
  } else {
    outcome.sample_ms = cut.period_ms / method.copies;
  }
  outcome.frames_a_second = outcome.sample_ms > 0 ? 1000.0 * profile.frames / outcome.sample_ms : 0;
  outcome.latency_ms = latency_of(model, cut);
  outcome.gradient_age = ages_of(model, cut);
  outcome.memory = memory_of(model, cut);
  for (const StageMemory& memory : outcome.memory)
    outcome.peak_bytes = std::max(outcome.peak_bytes, memory.total());
  return outcome;
}

}  // namespace millrace::engine::plan
