#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "stages/correction.h"
#include "stages/optimizer.h"
#include "tools/app/assembly.h"

namespace millrace::app {
namespace {

bool fresh(const std::vector<std::int64_t>& ages) {
  return std::ranges::all_of(ages, [](std::int64_t age) { return age == 0; });
}

/// Whether schedule and network allow deep supervision.
bool supervision_fits(engine::TrainerOptions options, const engine::Schedule& schedule) {
  options.correction.kind = "deep-supervision";
  try {
    engine::require_correction(options, schedule);
  } catch (const std::invalid_argument&) {
    return false;  // the stages' maps differ from the target in size
  }
  return true;
}

}  // namespace

void choose_correction(const Config& config, const engine::Schedule& schedule,
                       engine::TrainerOptions& options) {
  if (options.correction.kind != "auto") return;
  const auto unset = [&](const char* key) { return !config.places.contains(key); };
  const bool change = options.network->predicts_change();
  if (change && unset("optimizer.kind") && unset("optimizer.schedule") && unset("optimizer.warmup"))
    options.optimizer.warmup = 50;
  if (fresh(engine::gradient_ages(schedule))) {
    options.correction.kind = "none";
    return;
  }
  // With motion, errors move: an old gradient alone would hit another frame's pixels.
  const bool picture = options.output().height * options.output().width > 1;
  const bool adaptive = has_beta1(options.optimizer);  // for others the heads' rate may be too high
  if ((change || (picture && adaptive)) && supervision_fits(options, schedule)) {
    options.correction.kind = "deep-supervision";
    if (unset("correction.kernel")) options.correction.kernel = 3;
    // What reproduces the newest frame learns best from it alone.
    const bool same = options.target_is_input;
    if (same && unset("correction.weight")) options.correction.weight = 0.1;
    if (adaptive && unset("optimizer.beta1"))
      options.optimizer.beta1 = change ? 0.7 : same ? 0.8 : 0.5;
    if (change && adaptive && unset("optimizer.lr") && unset("correction.step"))
      options.correction.step = 1.5;
    // After a cut of the scene, old gradients push a long pipeline far before it sees the effect.
    if (change && adaptive && unset("optimizer.clip"))
      options.optimizer.clip = options.stages > 4 ? 0.5 : 1;
    return;
  }
  options.correction.kind = "inverse-age";
  if (adaptive && unset("optimizer.beta1")) options.optimizer.beta1 = 0;
}

bool has_beta1(const stages::OptimizerSpec& optimizer) {
  return std::ranges::any_of(stages::optimizer_info(optimizer.kind).keys,
                             [](const char* key) { return key && key == std::string("beta1"); });
}

std::string describe_correction(const Config& config, const engine::TrainerOptions& options) {
  const std::string& kind = options.correction.kind;
  const auto known = std::ranges::find(stages::corrections(), kind, &stages::CorrectionKind::name);
  const stages::OptimizerSpec& optimizer = options.optimizer;
  std::ostringstream text;
  text << kind << (config.correction.kind == "auto" ? " (auto): " : ": ")
       << (fresh(engine::gradient_ages(engine::schedule_of(options))) ? "gradients are fresh"
                                                                      : known->summary);
  if (has_beta1(optimizer)) text << ", " << optimizer.kind << "'s beta1 " << optimizer.beta1;
  if (kind == "deep-supervision" && options.correction.step != 1)
    text << ", " << options.correction.step << " x the rate";
  if (optimizer.clip > 0) text << ", clip " << optimizer.clip;
  if (optimizer.warmup > 0) text << ", warm-up of " << optimizer.warmup << " updates";
  if (kind != "none" && !options.network->predicts_change())
    text << "; where one core keeps up with the stream, schedule \"sequential\" learns best";
  return text.str();
}

std::string local_note(const engine::TrainerOptions& options) {
  const engine::Schedule schedule = engine::schedule_of(options);
  const std::string& kind = options.correction.kind;
  if (kind == "local" || kind == "deep-supervision" || fresh(engine::gradient_ages(schedule)) ||
      !options.network->learns_before(options.network->size()) ||
      !supervision_fits(options, schedule))
    return "";
  return "deep-supervision would also teach each stage by an auxiliary head of its own: pictures "
         "are often predicted better, for about half as much computation again";
}

}  // namespace millrace::app
