#include "tools/app/outputs/report.h"

#include <unistd.h>  // gethostname

#include <algorithm>
#include <cmath>

#include "tools/app/correction_choice.h"
#include "tools/app/parts.h"
#include "tools/app/provenance.h"

namespace millrace::app {
namespace {

using Json = nlohmann::ordered_json;

/// JSON has no nan: a loss that is none becomes null, which no reader takes for a number.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json loss_json(const RunLog& log) {
  const engine::LossHistory& net = log.network();
  const engine::LossHistory& mean = log.baseline();
  Json json = {{"first", number(net.first())},
               {"last", number(net.last())},
               {"mean", number(net.mean())},
               {"recent", number(net.recent())},
               {"not_finite", net.not_finite()},
               {"mean_frame", {{"mean", number(mean.mean())}, {"recent", number(mean.recent())}}}};
  const engine::LossHistory& last = log.last_frame();
  if (last.count() > 0)
    json["last_frame"] = {{"mean", number(last.mean())}, {"recent", number(last.recent())}};
  return json;
}

/// Of pictures: the network's and the trivial predictors'.
Json psnr_json(const Compared& squared) {
  const auto of = [](const engine::LossHistory& errors) {
    return Json{{"mean", number(psnr(errors.mean()))}, {"recent", number(psnr(errors.recent()))}};
  };
  Json json = of(squared.network);
  json["mean_frame"] = of(squared.mean_frame);
  if (squared.last_frame.count() > 0) json["last_frame"] = of(squared.last_frame);
  return json;
}

/// By stage: bytes that one of its workers holds.
Json memory_json(const engine::Trainer& trainer) {
  Json memory;
  for (const char* name :
       {"weights", "stashes", "optimizer", "gradients", "activations_peak", "total"})
    memory[name] = Json::array();
  for (const auto& [stage, dead_units, capture] : trainer.facts()) {
    memory["weights"].push_back(stage.weights);
    memory["stashes"].push_back(stage.stashes);
    memory["optimizer"].push_back(stage.optimizer);
    memory["gradients"].push_back(stage.gradients);
    memory["activations_peak"].push_back(stage.activations);
    memory["total"].push_back(stage.total());
  }
  return memory;
}

Json real_time_json(const engine::Reading& r, const engine::Verdict& verdict, bool F_estimated) {
  return {{"F", r.F},
          {"budget_ms", r.budget},
          {"holds", verdict.holds},
          {"reason", verdict.reason},
          {"window",
           {{"seconds", verdict.window_s},
            {"trained", verdict.window.trained},
            {"dropped", verdict.window.dropped},
            {"predicted_only", verdict.window.predicted_only}}},
          {"misses", r.misses},
          {"F_estimated", F_estimated}};
}

/// How the connection to the source fared; apart from the exact counts of frames.
Json source_json(const io::StreamHealth& health) {
  return {{"connected", health.connected.load()},
          {"breaks", health.breaks.load()},
          {"reconnects", health.reconnects.load()},
          {"attempts", health.attempts.load()},
          {"lost_upstream", health.lost_upstream.load()},
          {"away_s", double(health.away_ms.load()) / 1e3},
          {"last_error", health.last_error()}};
}

Json optimizer_json(const stages::OptimizerSpec& optimizer) {
  Json json = {{"kind", optimizer.kind}, {"lr", optimizer.lr}};
  if (has_beta1(optimizer)) json["beta1"] = optimizer.beta1;
  return json;
}

/// What makes a run comparable with another: what it was asked, of what, where, how long.
Json about_run(const About& run, std::int64_t trained, engine::Clock::time_point ended) {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  const std::chrono::duration<double> seconds = ended - run.progress.began;
  Config config = run.request.config;
  config.optimizer = run.learner.assembled.optimizer;  // as it ran
  return {{"uri", io::redacted(run.request.config.source.uri)},
          {"seed", run.request.config.weights.seed},
          {"host", host},
          {"duration_s", seconds.count()},
          {"fps", seconds.count() > 0 ? double(trained) / seconds.count() : 0.0},
          {"config", to_toml(config)}};
}

/// Of all samples learned from.
double share_replayed(const engine::FrameCounts& frames) {
  return double(frames.replayed) /
         double(std::max<std::int64_t>(1, frames.replayed + frames.trained));
}

/// {"dead": [3, 0], "units": [32, 64]}, by stage: channels that a ReLU follows.
Json dead_units_json(const engine::Trainer& trainer) {
  Json dead = Json::array(), units = Json::array();
  for (const engine::DeadUnits& stage : trainer.dead_units()) {
    dead.push_back(stage.dead);
    units.push_back(stage.units);
  }
  return {{"dead", dead}, {"units", units}};
}

}  // namespace

stages::Metadata about_weights(const About& run, std::int64_t samples,
                               engine::Clock::time_point now) {
  stages::Metadata all = {{"millrace", MILLRACE_VERSION},
                          {"frames", std::to_string(run.request.resumed.frames + samples)}};
  const Json about = about_run(run, samples, now);
  for (const auto& [key, value] : about.items())
    all[key] = value.is_string() ? value.get<std::string>() : value.dump();
  return all;
}

Json devices_json(const engine::Trainer& trainer) {
  Json devices = Json::array();
  for (const engine::Device& device : trainer.devices()) devices.push_back(device.name());
  return devices;
}

Json steps_json(const engine::Trainer& trainer) {
  Json stages = Json::array();
  for (const auto& [memory, dead_units, stage] : trainer.facts()) {
    stages.push_back(
        {{"capture", stage.recorded ? "graph" : "eager"}, {"left_to_libtorch", stage.left}});
  }
  return stages;
}

Json make_report(RunParts& p) {
  engine::Trainer& trainer = p.learner.trainer;
  const engine::Schedule& schedule = trainer.schedule();
  const engine::Reading r = trainer.monitor().read();
  Json report = {
      {"schedule", schedule.name},
      {"stages", schedule.stages},
      {"devices", devices_json(trainer)},
      {"cut", trainer.cut()},
      {"threads", trainer.threads()},
      {"frames",
       {{"received", p.progress.frames.received},
        {"trained", p.progress.frames.trained},
        {"dropped", p.progress.frames.dropped},
        {"rejected", p.progress.frames.rejected},
        {"in_flight", p.progress.frames.in_flight()}}},
      {"task",
       {{"kind", p.request.config.task.kind},
        {"loss", p.request.config.task.loss.text()},
        {"without_target", p.progress.frames.untold}}},
      {"updates", r.updates},
      {"timing_ms",
       {{"stage", r.stage},
        {"handoff", r.handoff},
        {"stage_with_handoff", r.stage_busy},
        {"T", r.T},
        {"T_over_N", r.T_over_N},
        {"bottleneck", r.bottleneck},
        {"bottleneck_stage", r.bottleneck_stage},
        {"step_p50", r.step_p50},
        {"step_p99", r.step_p99},
        {"speedup_K", r.speedup_K}}},
      {"realtime",
       real_time_json(r, p.learner.real_time.verdict(r), p.learner.rate_watch && p.learner.rate_watch->estimated())},
      {"latency_ms", {{"p50", r.latency_p50}, {"p99", r.latency_p99}, {"max", r.latency_max}}},
      {"gradient_age", r.gradient_age},
      {"gradient_age_spread", r.gradient_age_spread},
      {"correction", trainer.correction().kind},
      {"optimizer", optimizer_json(p.learner.assembled.optimizer)},
      {"guard", {{"roll_backs", trainer.guard().roll_backs()}, {"skipped_updates", r.skipped}}},
      {"dead_units", dead_units_json(trainer)},
      {"loss", loss_json(p.records.log)},
      {"memory_bytes", memory_json(trainer)},
      {"capture", trainer.recorded() ? "graph" : "eager"},
      {"steps", steps_json(trainer)},
      {"provenance", provenance(int(schedule.workers.size()))},
      {"source", source_json(*p.intake.health)},
      {"overload", p.learner.overload.report()},
      {"run", about_run({p.request, p.learner, p.progress}, p.progress.frames.trained, p.progress.ended)},
      {"novelty", {{"marked", p.records.log.novelty().marked()}, {"events", p.records.log.novelty().events()}}}};
  if (p.team) {
    report["ranks"] = p.team->report(trainer, r);
    report["bottleneck_link"] = p.team->bottleneck_link();
  }
  if (!p.request.resumed.path.empty())
    report["run"]["resumed"] = {{"from", p.request.resumed.path}, {"frames", p.request.resumed.frames}};
  if (p.learner.replay) {
    const ReplayBuffer& buffer = p.learner.replay->buffer();
    report["frames"]["replayed"] = p.progress.frames.replayed;
    report["replay"] = {{"kind", p.request.config.replay.kind},
                        {"share", share_replayed(p.progress.frames)},
                        {"kept", buffer.count()},
                        {"size", buffer.places()},
                        {"bytes", buffer.bytes()}};
  }
  report["overload"]["predicted_only"] = p.progress.frames.predicted_only;
  if (p.records.alerts) {
    report["novelty"]["alerts"] = {{"told", p.records.alerts->told()},
                                   {"dropped", p.records.alerts->dropped()},
                                   {"failed", p.records.alerts->failed()},
                                   {"last_error", p.records.alerts->last_error()}};
  }
  if (p.records.log.squared()) report["psnr_db"] = psnr_json(*p.records.log.squared());
  if (const ClassScores* const classes = p.records.log.classes()) {
    const auto beside = [](const auto& network, const auto& majority) {
      return Json{{"mean", network.mean()},
                  {"recent", network.recent()},
                  {"majority", {{"mean", majority.mean()}, {"recent", majority.recent()}}}};
    };
    report["accuracy"] = beside(classes->hits(), classes->majority_hits());
    if (classes->pixels()) report["iou"] = beside(classes->overlap(), classes->majority_overlap());
  }
  if (p.records.video) {
    report["video"] = {{"where", p.records.video->writer().where()},
                       {"written", p.records.video->writer().written()},
                       {"dropped", p.records.video->writer().dropped()}};
  }
  return report;
}

}  // namespace millrace::app
