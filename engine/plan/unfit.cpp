// why_nothing_fits(): the binding limit, in words.
#include "engine/plan/plan_text.h"

namespace millrace::engine::plan {
namespace {

std::string memory_text(const CostModel& model, const LeastMemory& least) {
  const Method& method = model.method();
  std::string text = "the least that does is " + bytes_text(least.bytes) + " (" + method.schedule +
                     (method.recompute ? ", recomputing" : "");
  for (const Stage& stage : least.stages) {
    const StageMemory memory = model.memory(stage, model.places() - stage.place - stage.places(),
                                            int(least.stages.size()));
    if (model.entry().virtual_stages || memory.total() < least.bytes) continue;
    return text + ", modules " + std::to_string(stage.begin) + " to " +
           std::to_string(stage.end - 1) + ": weights " + bytes_text(memory.weights) + " in " +
           std::to_string(memory.versions) + " version(s), gradient and optimizer " +
           bytes_text(memory.optimizer) + ", activations " + bytes_text(memory.stash) + " of " +
           std::to_string(memory.samples) + " sample(s)" +
           (memory.replay > 0 ? ", samples to replay " + bytes_text(memory.replay) : "") + ")";
  }
  return text + ")";
}

/// interleaved's chunks are cut for time alone.
LeastMemory of_interleaved(const Profile& profile, Machine machine, const Candidate& candidate) {
  machine.memory_bytes = 0;
  const CostModel model(profile, machine, candidate.method);
  const std::optional<Cut> cut = best_cut(model, candidate.freedom);
  if (!cut) return {};
  return {outcome_of(profile, model, *cut).peak_bytes, cut->stages};
}

}  // namespace

LeastMemory least_memory(const Profile& profile, const Machine& machine,
                         const Candidate& candidate) {
  if (schedule_entry(candidate.method.schedule).virtual_stages)
    return of_interleaved(profile, machine, candidate);
  Machine trial = machine;
  LeastMemory least;
  const auto fits = [&](double bytes) {
    trial.memory_bytes = bytes;
    const CostModel model(profile, trial, candidate.method);
    const std::vector<Stage> stages = any_cut(model, candidate.freedom);
    if (stages.empty()) return false;
    least = {peak_memory(model, stages), stages};
    return true;
  };
  if (!fits(0)) return {};
  double low = 0;
  while (least.bytes - low > 1e-6 * least.bytes) {
    const double middle = low + (least.bytes - low) / 2;
    if (!fits(middle)) low = middle;
  }
  return least;
}

std::string why_nothing_fits(const Profile& profile, const Request& request,
                             const std::vector<Candidate>& tried) {
  LeastMemory best;
  Candidate of;
  for (const Candidate& candidate : tried) {
    const LeastMemory least = least_memory(profile, request.machine, candidate);
    if (least.stages.empty() || (!best.stages.empty() && least.bytes >= best.bytes)) continue;
    best = least;
    of = candidate;
  }
  if (best.stages.empty() || request.machine.memory_bytes <= 0) {
    return "no plan fits: " + std::to_string(profile.modules.size()) +
           " modules cannot be cut into as many stages as asked on " +
           std::to_string(request.machine.devices()) + " devices";
  }
  const CostModel model(profile, request.machine, of.method);
  return "no plan fits memory of " + bytes_text(request.machine.memory_bytes) + " a device; " +
         memory_text(model, best);
}

}  // namespace millrace::engine::plan
