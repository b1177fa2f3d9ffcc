#include "tools/app/outputs/report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "capture/program/cuda/cuda_module.h"
#include "engine/format.h"
#include "tools/app/alerts/alerts.h"
#include "tools/app/assembly.h"
#include "tools/app/outputs/records.h"
#include "tools/app/provenance.h"

namespace millrace::app {
namespace {

using Json = nlohmann::ordered_json;

/// NaN becomes null: JSON has no NaN.
Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

template <class History>
Json mean_json(const History& history) {
  return {{"mean", number(history.mean())}, {"recent", number(history.recent())}};
}

/// Adds the trivial predictors that have errors, formatted by `show`.
template <class Show>
void add_trivial(Json& json, const Compared& errors, const Show& show) {
  json["mean_frame"] = show(errors.mean_frame);
  if (errors.last_frame.count() > 0) json["last_frame"] = show(errors.last_frame);
  if (errors.linear.count() > 0) json["linear"] = show(errors.linear);
}

Json loss_json(const RunLog& log) {
  const engine::LossHistory& net = log.network();
  Json json = {{"first", number(net.first())},
               {"last", number(net.last())},
               {"mean", number(net.mean())},
               {"recent", number(net.recent())},
               {"not_finite", net.not_finite()}};
  add_trivial(json, log.losses(), mean_json<engine::LossHistory>);
  return json;
}

/// In dB, for values in [0, 1].
Json psnr_json(const Compared& squared) {
  const auto of = [](const engine::LossHistory& errors) {
    return Json{{"mean", number(-10 * std::log10(errors.mean()))},
                {"recent", number(-10 * std::log10(errors.recent()))}};
  };
  Json json = of(squared.network);
  add_trivial(json, squared, of);
  return json;
}

template <class History>
Json score_json(const Scores<History>& scores) {
  Json json = mean_json(scores.network);
  json["majority"] = mean_json(scores.majority);
  return json;
}

/// Appends each value of `stage` to the list of its name.
void append(Json& lists, const Json& stage) {
  for (const auto& [name, value] : stage.items()) lists[name].push_back(value);
}

Json timing_json(const engine::Reading& r) {
  return {{"stage", r.stage},
          {"handoff", r.handoff},
          {"stage_with_handoff", r.stage_busy},
          {"T", r.T},
          {"T_over_N", r.T_over_N},
          {"bottleneck", r.bottleneck},
          {"bottleneck_stage", r.bottleneck_stage},
          {"step_p50", r.step_p50},
          {"step_p99", r.step_p99},
          {"speedup_K", r.speedup_K}};
}

Json latency_json(const engine::Reading& r) {
  return {{"p50", r.latency_p50}, {"p99", r.latency_p99}, {"max", r.latency_max}};
}

Json guard_json(const engine::Trainer& trainer, const engine::TrainerNow& now,
                const engine::Reading& r) {
  const engine::LossGuard::Status guard = trainer.guard().status();
  return {{"roll_backs", guard.roll_backs},
          {"last_frame", guard.roll_backs > 0 ? Json(guard.last_frame) : Json()},
          {"rate", now.rate.backed_off},
          {"skipped_updates", r.skipped}};
}

Json real_time_json(const engine::Reading& r, const engine::Verdict& verdict) {
  return {{"F", r.F},
          {"budget_ms", r.budget},
          {"judged", verdict.judged},
          {"holds", verdict.holds},
          {"reason", verdict.reason},
          {"window",
           {{"seconds", verdict.window_s},
            {"trained", verdict.window.trained},
            {"dropped", verdict.window.dropped},
            {"predicted_only", verdict.window.predicted_only}}},
          {"misses", r.misses}};
}

Json source_json(const Intake& intake) {
  const io::StreamHealth& health = *intake.health;
  return {{"live", intake.live},
          {"connected", health.connected.load()},
          {"breaks", health.breaks.load()},
          {"reconnects", health.reconnects.load()},
          {"attempts", health.attempts.load()},
          {"lost_upstream", health.lost_upstream.load()},
          {"away_s", double(health.away_ms.load()) / 1e3},
          {"last_error", health.last_error()}};
}

Json optimizer_json(const stages::OptimizerSpec& optimizer, double rate) {
  Json json = {{"kind", optimizer.kind}, {"lr", optimizer.lr}, {"lr_in_force", rate}};
  if (has_beta1(optimizer)) json["beta1"] = optimizer.beta1;
  return json;
}

/// The fields by which two runs are compared: config, source, host, duration.
Json about_run(const Request& request, const Progress& progress, const Learner& learner,
               std::int64_t trained, engine::Clock::time_point ended) {
  const std::chrono::duration<double> seconds = ended - progress.began;
  Config config = request.running();
  config.source.width = learner.assembled.sample.width;  // also the source's own
  config.source.height = learner.assembled.sample.height;
  config.task.classes = request.classes;
  Json about = {{"uri", request.source()},
                {"seed", config.weights.seed},
                {"host", host_name()},
                {"duration_s", seconds.count()},
                {"fps", seconds.count() > 0 ? double(trained) / seconds.count() : 0.0},
                {"config", to_toml(config)}};
  const capture::CudaModule* const cuda = capture::cuda_module();
  if (const gpu::Choices made = cuda ? cuda->choices() : gpu::Choices(); !made.empty())
    about["kernels"] = made;
  return about;
}

/// Prediction quality: loss, psnr_db, accuracy, iou, and whether it beats trivial predictors.
Json learned_report(const RunLog& log) {
  const Standing standing = log.standing();
  Json report = {{"loss", loss_json(log)},
                 {"learned",
                  {{"yes", standing.learned()},
                   {"strongest", standing.strongest},
                   {"times", number(standing.times)}}}};
  if (log.squared()) report["psnr_db"] = psnr_json(*log.squared());
  if (const ClassScores* const classes = log.classes()) {
    report["accuracy"] = score_json(classes->hits());
    if (classes->pixels()) {
      report["accuracy"]["last_class"] = mean_json(classes->last_hits());
      report["iou"] = score_json(classes->overlap());
    } else if (const auto& returned = classes->returned(); returned.network.count() > 0) {
      report["accuracy_on_return"] = score_json(returned);
      report["accuracy_on_return"]["frames"] = returned.network.count();
    }
  }
  return report;
}

/// Why steps are eager that should have been recorded; null: none is.
Json capture_error(const engine::TrainerNow& now) {
  return now.recording.error.empty() ? Json() : Json(now.recording.error);
}

/// Bytes of each kind, by stage.
Json memory_json(const engine::Trainer& trainer) {
  Json memory;
  for (const auto& [stage, recorded, left] : trainer.facts())
    append(memory, {{"weights", stage.weights},
                    {"stashes", stage.stashes},
                    {"optimizer", stage.optimizer},
                    {"gradients", stage.gradients},
                    {"activations_peak", stage.activations},
                    {"cuts", stage.cuts},
                    {"scratch", stage.scratch},
                    {"samples", stage.samples},
                    {"total", stage.total()}});
  return memory;
}

/// {"dead": [3, 0], "units": [32, 64]}, by stage: channels followed by a ReLU.
Json dead_units_json(const engine::TrainerNow& now) {
  Json all;
  for (const auto& [dead, units] : now.dead_units) append(all, {{"dead", dead}, {"units", units}});
  return all;
}

/// Without updates that change no weight.
engine::Reading reading_of(const Config& config, Learner& learner) {
  engine::Reading r = learner.trainer.monitor().read();
  if (learner.memory || !config.weights.learn) std::ranges::fill(r.updates, 0);
  if (learner.memory) r.updates.back() = learner.memory->told().solved;
  return r;
}

/// `idle`: no worker is running, so the stages' steps may be read.
Json trainer_report(const engine::Trainer& trainer, const engine::TrainerNow& now,
                    const engine::Reading& r, const engine::FrameCounts& frames, bool idle) {
  Json devices = Json::array(), steps = Json::array();
  for (const engine::Device& device : trainer.devices()) devices.push_back(device.name());
  if (idle)
    for (const auto& [stage, recorded, left] : trainer.facts())
      steps.push_back({{"capture", recorded ? "graph" : "eager"}, {"left_to_libtorch", left}});
  return {{"schedule", trainer.schedule().name},
          {"stages", trainer.schedule().stages},
          {"devices", devices},
          {"cut", now.cut},
          {"threads", trainer.options().threads},
          {"frames", frames_json(frames)},
          {"updates", r.updates},
          {"timing_ms", timing_json(r)},
          {"latency_ms", latency_json(r)},
          {"gradient_age", r.gradient_age},
          {"gradient_age_spread", r.gradient_age_spread},
          {"correction", trainer.options().correction.kind},
          {"optimizer", optimizer_json(trainer.options().optimizer, now.rate.lr)},
          {"guard", guard_json(trainer, now, r)},
          {"capture", now.recording.on ? "graph" : "eager"},
          {"capture_error", capture_error(now)},
          {"steps", steps}};
}

Json by_reason(const Novelty& novelty) {
  Json counts = Json::object();
  for (std::size_t i = 0; i < kReasons; ++i) counts[kReasonNames[i]] = novelty.events_of(Reason(i));
  return counts;
}

Json zones_json(const std::vector<Zone>& zones) {
  Json all = Json::array();
  for (const Zone& zone : zones) {
    all.push_back(
        {{"name", zone.name}, {"points", zone.points}, {"sensitivity", zone.sensitivity}});
  }
  return all;
}

Json live_novelty(const Novelty& novelty) {
  Json json = {{"unexpected", novelty.marked()},   {"events", novelty.events()},
               {"by_reason", by_reason(novelty)},  {"deviation", novelty.deviation()},
               {"threshold", novelty.threshold()}, {"in_event", novelty.in_event()}};
  if (const auto last = novelty.last()) json["last"] = event_json(*last);
  return json;
}

Json novelty_report(const Novelty& novelty) {
  Json latest = Json::array();
  for (const NoveltyEvent& event : novelty.latest()) latest.push_back(event_json(event));
  Json json = {{"marked", novelty.marked()},
               {"events", novelty.events()},
               {"by_reason", by_reason(novelty)},
               {"latest", latest}};
  if (!latest.empty()) json["frame"] = latest.back()["frame"];
  return json;
}

}  // namespace

Json frames_json(const engine::FrameCounts& frames) {
  return {{"received", frames.received},
          {"trained", frames.trained},
          {"dropped", frames.dropped},
          {"rejected", frames.rejected},
          {"in_flight", frames.in_flight()}};
}

std::string guard_remark(const engine::Trainer& trainer) {
  const engine::LossGuard::Status guard = trainer.guard().status();
  if (guard.roll_backs == 0) return "";
  const capture::RateInForce rate = trainer.now().rate;
  return engine::format("guard: %ld roll-backs, the last at frame %ld; the learning rate is %.3g",
                        guard.roll_backs, guard.last_frame, rate.lr) +
         (rate.backed_off < 1 ? engine::format(", %.3g of what was asked for", rate.backed_off)
                              : "");
}

stages::Metadata about_weights(const Request& request, const Progress& progress,
                               const Learner& learner, std::int64_t samples,
                               engine::Clock::time_point now) {
  stages::Metadata all = {{"millrace", MILLRACE_VERSION},
                          {"frames", std::to_string(request.resumed.frames + samples)}};
  const ClassMemory* const memory = learner.memory.get();
  if (memory) {
    all["taught"] = memory->told().likeness->json(/*features=*/true).dump();
  } else if (learner.known.any()) {
    all["taught"] = learner.known.json(/*features=*/false).dump();  // of other weights
  }
  const Json about = about_run(request, progress, learner, samples, now);
  for (const auto& [key, value] : about.items())
    all[key] = value.is_string() ? value.get<std::string>() : value.dump();
  return all;
}

Json live_report(const Request& request, const Intake& intake, Learner& learner,
                 const Records& records) {
  engine::Trainer& trainer = learner.trainer;
  const engine::TrainerNow now = trainer.now();
  const RunLog& log = records.log;
  const engine::Reading r = reading_of(request.config, learner);
  const engine::FrameCounts frames = learner.frames(intake);
  const Json none = {{"recent", nullptr}};
  Json report = {{"version", MILLRACE_VERSION},
                 {"source", request.source()},
                 {"task", request.config.task.kind},
                 {"schedule", trainer.schedule().name},
                 {"cut", now.cut},
                 {"frames", frames_json(frames)},
                 {"loss", {{"last_frame", none}, {"linear", none}}},
                 {"accuracy", nullptr},
                 {"accuracy_on_return", nullptr},
                 {"answer", nullptr},
                 {"iou", nullptr},
                 {"psnr_db", log.squared() ? Json{{"last_frame", none}} : Json()},
                 {"novelty", live_novelty(records.novelty)},
                 {"zones", zones_json(request.config.novelty.zones)},
                 {"ignore", zones_json(request.config.novelty.ignore)},
                 {"guard", guard_json(trainer, now, r)},
                 {"learning_rate", now.rate.lr},
                 {"capture_error", capture_error(now)},
                 {"timing_ms", timing_json(r)},
                 {"realtime", real_time_json(r, learner.real_time.verdict(r))},
                 {"latency_ms", latency_json(r)},
                 {"stream", source_json(intake)}};
  report.update(learned_report(log), /*merge_objects=*/true);
  if (const Answers* const answers = records.answers.get())
    report["answer"] = answers->json(answers->now());
  report["frames"]["predicted_only"] = frames.predicted_only;
  report["frames"]["replayed"] = frames.replayed;
  report["frames"]["before"] = request.resumed.frames;
  // Sources that can't break off don't count frames_since.
  const io::StreamHealth& health = *intake.health;
  const std::int64_t since = health.frames_since.load();
  report["stream"]["frames_since"] =
      since > 0 || health.breaks.load() > 0 ? since : frames.received;
  for (std::size_t stage = 0; stage < now.dead_units.size(); ++stage) {
    const int first = trainer.schedule().replica_id(int(stage), 0);
    report["stages"].push_back({{"device", trainer.devices()[std::size_t(first)].name()},
                                {"replicas", trainer.schedule().replicas_of(int(stage))},
                                {"compute_ms", r.stage[stage]},
                                {"handoff_ms", r.handoff[stage]},
                                {"busy_ms", r.stage_busy[stage]},
                                {"updates", r.updates[stage]},
                                {"misses", r.misses[stage]},
                                {"gradient_age", r.gradient_age[stage]},
                                {"dead_units", now.dead_units[stage].dead},
                                {"units", now.dead_units[stage].units}});
  }
  return report;
}

Json make_report(const Request& request, const Progress& progress, const RankTeam* team,
                 const Intake& intake, Learner& learner, const Records& records) {
  const Config& config = request.config;
  const engine::Trainer& trainer = learner.trainer;
  const engine::Reading r = reading_of(config, learner);
  const bool idle = !progress.learning;
  const engine::FrameCounts frames = idle ? progress.frames : learner.frames(intake);
  const RunLog& log = records.log;
  const engine::TrainerNow now = trainer.now();
  Json report = trainer_report(trainer, now, r, frames, idle);
  report["optimizer"]["lr"] = request.running().optimizer.lr;
  report["task"] = {{"kind", config.task.kind},
                    {"loss", config.task.loss.text()},
                    {"without_target", frames.without_target + learner.feed->unfit()},
                    {"minibatch_rejected", frames.incomplete}};
  report["realtime"] = real_time_json(r, learner.real_time.verdict(r));
  report["realtime"]["F_estimated"] = learner.rate_watch.estimated();
  report["dead_units"] = dead_units_json(now);
  report.update(learned_report(log));
  if (idle) report["memory_bytes"] = memory_json(trainer);
  report["process"] = {{"resident_bytes", resident_bytes("VmRSS")},
                       {"peak_bytes", resident_bytes("VmHWM")},
                       {"libraries_bytes", learner.libraries_bytes}};
  report["provenance"] = provenance(int(trainer.schedule().workers.size()));
  report["source"] = source_json(intake);
  report["overload"] = learner.overload.report();
  report["overload"]["predicted_only"] = frames.predicted_only;
  report["run"] = about_run(request, progress, learner, frames.trained,
                            idle ? progress.ended : engine::Clock::now());
  report["novelty"] = novelty_report(records.novelty);
  if (team) {
    report["ranks"] = team->report(trainer, r);
    report["bottleneck_link"] = team->bottleneck_link();
  }
  if (const Resumed& resumed = request.resumed; !resumed.path.empty())
    report["run"]["resumed"] = {{"from", resumed.path}, {"frames", resumed.frames}};
  if (const Answers* const answers = records.answers.get()) {
    report["answer"] = answers->json(answers->now());
    report["neither"] = answers->neither();
  }
  if (learner.memory) {
    const ClassMemory::Told told = learner.memory->told();
    report["replay"] = {{"kind", "ridge"},
                        {"kept", std::accumulate(told.counts.begin(), told.counts.end(), 0)},
                        {"by_class", told.counts},
                        {"solved", told.solved},
                        {"size", config.replay.size},
                        {"bytes", learner.memory->bytes()}};
  }
  if (learner.replay) {
    const ReplayBuffer& buffer = learner.replay->buffer();
    const std::int64_t all = std::max<std::int64_t>(1, frames.replayed + frames.trained);
    report["frames"]["replayed"] = frames.replayed;
    report["replay"] = {{"kind", config.replay.kind},
                        {"share", double(frames.replayed) / double(all)},
                        {"kept", buffer.count()},
                        {"size", buffer.places()},
                        {"bytes", buffer.bytes()}};
  }
  if (const Alerts* const alerts = records.alerts.get()) {
    report["novelty"]["alerts"] = {{"told", alerts->told()},
                                   {"dropped", alerts->dropped()},
                                   {"failed", alerts->failed()},
                                   {"last_error", alerts->last_error()}};
  }
  if (records.video) {
    const io::VideoWriter& video = records.video->writer();
    report["video"] = {
        {"where", video.where()}, {"written", video.written()}, {"dropped", video.dropped()}};
  }
  return report;
}

}  // namespace millrace::app
