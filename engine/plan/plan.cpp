#include "engine/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "engine/format.h"
#include "engine/plan/plan_text.h"
#include "engine/schedule/registry.h"

namespace millrace::engine::plan {
namespace {

/// A worker's time per sample. Interleaved workers have several stages.
struct WorkerTime {
  double turn = 0;      ///< between samples: forward, backward, messages that do not overlap
  double fill = 0;      ///< what fill and drain take of it on one replica
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
    if (model.machine().overlap == Overlap::none)
      step += model.arrive_ms(stage) + model.leave_ms(stage);
    const double residue = std::max(0.0, step - 2 * ms.weight_gradient / speed);
    WorkerTime& worker = workers[i % count];
    worker.turn += step / model.turns(stage.replicas);
    worker.fill += model.method().schedule == "zb-h1" ? residue : step;
    worker.flushing += ms.update / speed + time.agree * model.group(stage.replicas);
  }
  return workers;
}

void rate_flushing(const CostModel& model, const Cut& cut, Outcome& outcome) {
  const Method& method = model.method();
  const double m = method.microbatches;
  double slowest = 0, longest = 0, all = 0, rest = 0, flushing = 0;
  for (const WorkerTime& worker : worker_times(model, cut)) {
    slowest = std::max(slowest, m * worker.turn);
    longest = std::max(longest, worker.fill);
    all += worker.fill;
    rest = std::max(rest, m * worker.turn - worker.fill);
    flushing = std::max(flushing, worker.flushing);
  }
  // With replicas, the worker that is busy longest may not be the one with the longest step.
  const double fill =
      model.entry().replicates ? all + rest - slowest : (all - longest) / method.virtual_stages;
  double way = 0;  // a sample's messages there and back; without overlap, in the workers' steps
  for (const Stage& stage : cut.stages)
    way += model.machine().overlap == Overlap::none ? 0 : model.arrive_ms(stage);
  outcome.bubble = slowest > 0 ? fill / slowest : 0;
  outcome.sample_ms = (slowest + fill + way + flushing) / (m * method.copies);
}

/// A replica passes on a sample every `replicas` periods; the last stage predicts after its
/// forward.
double latency_of(const CostModel& model, const Cut& cut) {
  const std::string& schedule = model.method().schedule;
  const bool alone = schedule == "sequential" || schedule == "gpipe";  // no backward in between
  const int ends = model.machine().overlap == Overlap::none ? 2 : 1;   // that a message occupies
  double ms = 0;
  for (const Stage& stage : cut.stages) {
    if (alone) ms += ends * model.activation_ms(stage);
    const double forward =
        model.step(stage.begin, stage.end).forward / model.speedup(stage.threads);
    const bool last = &stage == &cut.stages.back();
    ms += alone || last ? forward : model.turns(stage.replicas) * cut.period_ms;
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

/// By stage. Interleaved: by worker, with the most chunks whose activations it holds at a time
/// (`samples`) and the most bytes (`stash`). With recompute a chunk at first holds its input only.
std::vector<StageMemory> memory_of(const CostModel& model, const Cut& cut) {
  std::vector<StageMemory> list;
  for (const Stage& stage : cut.stages) list.push_back(model.memory(stage, int(cut.stages.size())));
  if (!model.entry().virtual_stages) return list;
  const Schedule schedule = make_schedule(model.method().spec(int(list.size())));
  const std::vector<StageMemory> chunks = list;
  list.resize(schedule.workers.size());
  for (std::size_t worker = 0; worker < list.size(); ++worker) {
    StageMemory& memory = list[worker];
    for (std::size_t more = worker + list.size(); more < chunks.size(); more += list.size()) {
      memory.weights += chunks[more].weights;
      memory.optimizer += chunks[more].optimizer;
    }
    const Program& program = schedule.workers[worker];
    int held = memory.samples = 0;
    double bytes = memory.stash = 0;
    for (std::size_t at = 0; at < program.prologue.size() + program.period.size(); ++at) {
      const Action a = program.at(std::int64_t(at));
      const double input = model.input_bytes(cut.stages[a.stage].begin, 1);
      const double stash = chunks[a.stage].stash - input;
      if (a.op == Op::forward) bytes += model.method().recompute ? input : stash;
      if (a.op == Op::recompute) bytes += stash;
      held += a.op == Op::forward ? 1 : a.op == Op::backward ? -1 : 0;
      memory.samples = std::max(memory.samples, held);
      memory.stash = std::max(memory.stash, bytes);
      if (a.op == Op::backward) bytes -= stash + input;
    }
  }
  return list;
}

struct Candidate {
  Method method;
  Freedom freedom;
  bool operator==(const Candidate&) const = default;
};

/// Whether the method allows `stages` stages of one place each: 2bw needs as many microbatches,
/// interleaved a multiple of its workers.
bool suits(const Method& method, int stages) {
  const ScheduleEntry& entry = schedule_entry(method.schedule);
  if (entry.fits_minibatch) return method.microbatches >= stages;
  if (!entry.virtual_stages) return true;
  return stages % method.virtual_stages == 0 &&
         method.microbatches % (stages / method.virtual_stages) == 0;
}

std::vector<int> divisors(int number, int most) {
  std::vector<int> list;
  for (int d = 1; d <= std::min(number, most); ++d) {
    if (number % d == 0) list.push_back(d);
  }
  return list;
}

constexpr int kMostPlaces = 16;  ///< planning all choices for more would take too long

/// Adds a method with this freedom. Where links differ, it matters which devices stay idle.
void add_idle(Method method, const Freedom& freedom, int places, const Request& request,
              std::vector<Candidate>& list) {
  if (freedom.stages > 0 && !suits(method, freedom.stages)) return;
  const bool chunks = schedule_entry(method.schedule).virtual_stages;
  if (chunks) method.idle = places - freedom.stages / method.virtual_stages;
  list.push_back({method, freedom});
  if (request.machine.levels.size() < 2 || chunks || places > kMostPlaces) return;
  for (method.idle = 1; method.idle <= places - std::max(1, freedom.stages); ++method.idle)
    list.push_back({method, freedom});
}

/// Adds one method's candidates. Where stages wait for one another, the cut with the least
/// bottleneck is not always the best: each number of stages is tried.
void add(const Method& method, const Request& request, std::vector<Candidate>& list) {
  const ScheduleEntry& entry = schedule_entry(method.schedule);
  const int places = request.machine.devices() / (method.tensor * method.copies);
  const bool replicas = request.replicas && entry.replicates;
  const bool waits = entry.flushes || method.schedule == "sequential";
  if (!entry.virtual_stages &&
      (request.stages > 0 || replicas || request.threads || !entry.flushes)) {
    add_idle(method, {.replicas = replicas, .threads = request.threads, .stages = request.stages},
             places, request, list);
    if (request.threads && request.stages < 2) list.push_back({method, {.together = true}});
    if (!waits || request.stages > 0) return;
  }
  for (int workers = places; workers > 0; workers = std::min(workers - 1, kMostPlaces)) {
    const int stages = workers * method.virtual_stages;
    if (request.stages == 0 || request.stages == stages)
      add_idle(method, {.stages = stages}, places, request, list);
  }
}

/// Whether two methods differ at most in which devices stay idle.
bool alike(Method a, const Method& b) {
  a.idle = b.idle;
  return a == b;
}

void add_shares(Method method, const Profile& profile, const Request& request,
                std::vector<Candidate>& list) {
  int ways = 1;
  for (const ModuleProfile& module : profile.modules) ways = std::max(ways, module.tensor_ways);
  const ScheduleEntry& entry = schedule_entry(method.schedule);
  const bool copies = entry.replicates || entry.flushes;
  const int devices = request.machine.devices(), samples = method.microbatches;
  for (const int tensor : divisors(devices, std::min(ways, request.most_tensor))) {
    for (const int share : divisors(devices / tensor, copies ? request.most_copies : 1)) {
      if (entry.minibatches && samples % share != 0) continue;
      method.tensor = tensor;
      method.copies = share;
      method.microbatches = entry.minibatches ? samples / share : 1;
      for (const bool inside : {false, true}) {
        method.copies_inside = inside;
        if (!inside || share > 1) add(method, request, list);
      }
    }
  }
}

std::vector<Candidate> candidates(const Profile& profile, const Request& request) {
  const int modules = int(profile.modules.size());
  int chunks = 1;
  for (const std::string& schedule : request.schedules)
    if (schedule_entry(schedule).virtual_stages)
      chunks = std::max(chunks, *std::ranges::max_element(request.virtual_stages));
  if (request.stages > std::min(modules, chunks * request.machine.devices())) {
    throw std::invalid_argument(format("%d stages do not fit %d modules on %d devices",
                                       request.stages, modules, request.machine.devices()));
  }
  std::vector<Candidate> list;
  for (const std::string& schedule : request.schedules) {
    const ScheduleEntry& entry = schedule_entry(schedule);
    for (const int m : entry.minibatches ? request.microbatches : std::vector<int>{1}) {
      for (const int v : entry.virtual_stages ? request.virtual_stages : std::vector<int>{1}) {
        if (m < 1 || v < 1) throw std::invalid_argument("microbatches and chunks begin at 1");
        for (const bool recompute : {false, true}) {
          if (recompute && !(request.recompute && entry.recomputes)) continue;
          add_shares({.schedule = schedule,
                      .microbatches = m,
                      .virtual_stages = v,
                      .recompute = recompute},
                     profile, request, list);
        }
      }
    }
  }
  if (list.empty()) {
    throw std::invalid_argument(
        "no method fits: 2bw needs microbatches >= stages, interleaved microbatches in "
        "multiples of its workers");
  }
  return list;
}

/// Cuts without the memory limit first: methods that differ only in memory share that cut.
class Cutter {
 public:
  Cutter(const Profile& profile, const Machine& machine) : profile_(profile), machine_(machine) {}

  std::optional<Plan> plan(const Candidate& candidate) {
    Machine roomy = machine_;
    roomy.memory_bytes = 0;
    const CostModel model(profile_, roomy, candidate.method);
    std::optional<Cut> cut = roomy_cut(model, candidate);
    if (!cut) return {};
    if (const auto plan = fitting(model, *cut)) return plan;
    if (model.entry().virtual_stages) return {};  // memory is summed over a device's chunks
    const CostModel tight(profile_, machine_, candidate.method);
    cut = best_cut(tight, candidate.freedom);
    return cut ? fitting(tight, *cut) : std::nullopt;
  }

 private:
  std::optional<Cut> roomy_cut(const CostModel& model, const Candidate& candidate) {
    Candidate key = candidate;
    // The others differ only in whether a minibatch's end leaves replicas idle.
    if (!model.entry().fits_minibatch) key.method.schedule = model.entry().flushes ? "flushes" : "";
    for (const auto& [known, cut] : cuts_) {
      if (known == key) return cut;
    }
    cuts_.push_back({key, best_cut(model, candidate.freedom)});
    return cuts_.back().second;
  }

  std::optional<Plan> fitting(const CostModel& model, const Cut& cut) const {
    const Plan plan{model.method(), cut, outcome_of(profile_, model, cut)};
    const double room = machine_.memory_bytes * (1 + 1e-12);
    if (machine_.memory_bytes > 0 && plan.outcome.peak_bytes > room) return {};
    return plan;
  }

  const Profile& profile_;
  const Machine& machine_;
  std::vector<std::pair<Candidate, std::optional<Cut>>> cuts_;
};

/// Sort key. Times that differ only by rounding are equal.
std::tuple<double, double, std::int64_t> rank(const Plan& plan) {
  const double ms = plan.outcome.sample_ms;
  const double unit = ms > 0 ? std::pow(10.0, std::floor(std::log10(ms)) - 9) : 1.0;
  return {std::round(ms / unit) * unit, plan.outcome.peak_bytes,
          std::ranges::max(plan.outcome.gradient_age)};
}

/// The stage that needs most memory, and for what; not for interleaved, whose workers have several.
std::string memory_text(const Plan& plan) {
  const bool fastest = schedule_entry(plan.method.schedule).virtual_stages;
  const std::string text = (fastest ? "the fastest cut takes " : "the least that does is ") +
                           bytes_text(plan.outcome.peak_bytes) + " (" + plan.method.schedule +
                           (plan.method.recompute ? ", recomputing" : "");
  if (fastest) return text + "); others were not tried";
  const auto& memory = plan.outcome.memory;
  const auto most = std::ranges::max_element(memory, {}, &StageMemory::total);
  const Stage& stage = plan.cut.stages[std::size_t(most - memory.begin())];
  return text +
         format(
             ", modules %d to %d: weights %s in %d version(s), gradient and optimizer %s, "
             "activations %s of %d sample(s)",
             stage.begin, stage.end - 1, bytes_text(most->weights).c_str(), most->versions,
             bytes_text(most->optimizer).c_str(), bytes_text(most->stash).c_str(), most->samples) +
         (most->replay > 0 ? ", samples to replay " + bytes_text(most->replay) : "") + ")";
}

/// The plan with the least memory per device, at any speed; none if nothing fits at any memory.
std::optional<Plan> leanest_plan(const Profile& profile, Machine machine,
                                 const Candidate& candidate) {
  double least = 0;
  std::optional<Cut> cut;
  const auto fits = [&](double bytes) {
    machine.memory_bytes = bytes;
    const CostModel model(profile, machine, candidate.method);
    const std::vector<Stage> stages = any_cut(model, candidate.freedom);
    if (stages.empty()) return false;
    least = peak_memory(model, stages);
    cut = weigh(model, stages);
    return true;
  };
  machine.memory_bytes = 0;
  const CostModel model(profile, machine, candidate.method);
  if (model.entry().virtual_stages) {
    cut = best_cut(model, candidate.freedom);  // chunks are cut for time alone
  } else if (fits(0)) {
    for (double low = 0; least - low > 1e-6 * least;) {
      const double middle = low + (least - low) / 2;
      if (!fits(middle)) low = middle;
    }
  }
  if (!cut) return {};
  return Plan{candidate.method, *cut, outcome_of(profile, model, *cut)};
}

/// One line that names the binding limit: too many stages, or memory, with the least that would
/// suffice, and for which method and stage.
std::string why_nothing_fits(const Profile& profile, const Request& request,
                             const std::vector<Candidate>& tried) {
  std::optional<Plan> best;
  for (const Candidate& candidate : tried) {
    const std::optional<Plan> plan = leanest_plan(profile, request.machine, candidate);
    if (plan && (!best || plan->outcome.peak_bytes < best->outcome.peak_bytes)) best = plan;
  }
  if (!best || request.machine.memory_bytes <= 0) {
    return format(
        "no plan fits: %zu modules cannot be cut into as many stages as asked on %d "
        "devices",
        profile.modules.size(), request.machine.devices());
  }
  return "no plan fits memory of " + bytes_text(request.machine.memory_bytes) + " a device; " +
         memory_text(*best);
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
      outcome.sample_ms += (ms.total() + again) / model.speedup(stage.threads) +
                           model.arrive_ms(stage) +
                           (model.machine().overlap == Overlap::none ? model.leave_ms(stage) : 0);
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

std::vector<Plan> make_plans(const Profile& profile, const Request& request) {
  check_profile(profile);
  Cutter cutter(profile, request.machine);
  const std::vector<Candidate> all = candidates(profile, request);
  std::vector<Plan> plans;
  for (const Candidate& candidate : all) {
    if (const auto plan = cutter.plan(candidate)) plans.push_back(*plan);
  }
  if (plans.empty()) throw std::invalid_argument(why_nothing_fits(profile, request, all));
  std::ranges::stable_sort(plans, {}, rank);
  std::vector<Plan> best;
  for (const Plan& plan : plans) {
    const bool known =
        std::ranges::any_of(best, [&](const Plan& p) { return alike(p.method, plan.method); });
    if (!known) best.push_back(plan);
  }
  return best;
}

}  // namespace millrace::engine::plan
