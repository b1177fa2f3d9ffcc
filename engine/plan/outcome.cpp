#include "engine/plan/plan.h"

#include <algorithm>

#include "engine/schedule/registry.h"

namespace millrace::engine::plan {
namespace {

/// A worker's time per sample. Interleaved workers have several stages.
struct WorkerTime {
  double step = 0;      ///< on one replica: forward, backward, messages that do not overlap
  double turn = 0;      ///< step / replicas: time between samples
  double residue = 0;   ///< zb-h1: the part of the step left in fill and drain
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

/// A sample's messages there and back where they overlap with computing; otherwise `step` has them.
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

/// A replica passes on a sample every `replicas` periods; the last stage predicts after its
/// forward.
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

/// A replica or copy counts as a stage: it adds a sample between itself and the loss.
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

/// For an interleaved schedule's workers: the most chunks whose activations they hold at a time,
/// and the most bytes. A sample takes `stash` in each stage, and `input` until it is recomputed.
void keep_chunks(const Method& method, const std::vector<double>& stash,
                 const std::vector<double>& input, std::vector<StageMemory>& workers) {
  const Schedule schedule = make_schedule(method.schedule, {.stages = int(stash.size()),
                                                            .microbatches = method.microbatches,
                                                            .virtual_stages = method.virtual_stages,
                                                            .recompute = method.recompute});
  for (std::size_t worker = 0; worker < workers.size(); ++worker) {
    const Program& program = schedule.workers[worker];
    StageMemory& memory = workers[worker];
    int chunks = memory.samples = 0;
    double bytes = memory.stash = 0;
    for (std::size_t at = 0; at < program.prologue.size() + program.period.size(); ++at) {
      const Action a = program.at(std::int64_t(at));
      const double kept = method.recompute ? input[a.stage] : 0;
      chunks += a.op == Op::forward ? 1 : a.op == Op::backward ? -1 : 0;
      if (a.op == Op::forward) bytes += method.recompute ? kept : stash[a.stage];
      if (a.op == Op::recompute) bytes += stash[a.stage];
      memory.samples = std::max(memory.samples, chunks);
      memory.stash = std::max(memory.stash, bytes);
      if (a.op == Op::backward) bytes -= stash[a.stage] + kept;
    }
  }
}

std::vector<StageMemory> memory_of(const CostModel& model, const Cut& cut) {
  std::vector<StageMemory> list;
  for (const Stage& stage : cut.stages) list.push_back(model.memory(stage, int(cut.stages.size())));
  if (!model.entry().virtual_stages) return list;
  const std::size_t workers = list.size() / std::size_t(model.method().virtual_stages);
  std::vector<double> stash, input;
  for (std::size_t chunk = 0; chunk < list.size(); ++chunk) {
    input.push_back(model.input_bytes(cut.stages[chunk].begin, 1));
    stash.push_back(list[chunk].stash - input.back());
    if (chunk < workers) continue;
    list[chunk % workers].weights += list[chunk].weights;
    list[chunk % workers].optimizer += list[chunk].optimizer;
  }
  list.resize(workers);
  keep_chunks(model.method(), stash, input, list);
  return list;
}

}  // namespace

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
