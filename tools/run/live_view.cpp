#include "tools/run/live_view.h"

#include <algorithm>  // copies

namespace millrace::tools {
namespace {

io::Distribution distribution(const engine::Histogram& histogram) {
  io::Distribution result;
  histogram.each([&](double ns, std::int64_t count) { result.add(ns * 1e-9, count); });
  return result;
}

io::Controls::Offered offered(const Config& config, const LiveSubject& subject) {
  return {.pause = true,
          .save = subject.checkpointer != nullptr,
          .learning_rate = config.optimizer.lr > 0};
}

}  // namespace

LiveView::LiveView(const Config& config, const stages::ImageShape& sample, const std::string& serve,
                   const std::string& token, LiveSubject subject)
    : config_(config), subject_(std::move(subject)), controls_(offered(config, subject_)) {
  if (config.task.kind != "label") {
    const io::PictureShape shape{int(sample.channels), int(sample.height), int(sample.width)};
    board_ = std::make_unique<io::PictureBoard>(shape, shape);
  }
  server_ = std::make_unique<io::WebServer>(
      io::web_options(serve, token),
      io::WebSubject{
          .look = [this] { return look(); }, .pictures = board_.get(), .controls = &controls_});
}

void LiveView::predicted(const engine::SampleInfo& info, int slot, float) {
  io::Pictures* const room = board_ ? board_->room() : nullptr;
  if (!room) return;
  std::copy_n(subject_.trainer.shown_input(slot), room->input.size(), room->input.begin());
  std::copy_n(subject_.trainer.shown_target(slot), room->target.size(), room->target.begin());
  std::copy_n(subject_.trainer.prediction(slot), room->prediction.size(), room->prediction.begin());
  board_->show(info.sample);
}

void LiveView::obey() {
  if (const auto rate = controls_.take_learning_rate())
    subject_.rate = *rate / config_.optimizer.lr;
  // Beyond what any stage can be at by now.
  if (controls_.take_save() && subject_.checkpointer)
    subject_.checkpointer->ask(subject_.trainer.trained() +
                               4 * subject_.trainer.schedule().slots());
}

io::Snapshot LiveView::look() const {
  const engine::Reading r = subject_.trainer.monitor().read();
  const io::StreamHealth& health = *subject_.health;
  io::Snapshot now;
  now.version = MILLRACE_VERSION;
  now.source = config_.source.uri;
  now.task = config_.task.kind;
  now.schedule = subject_.trainer.schedule().name;
  now.cut = subject_.trainer.cut();
  add_stages(now, r);
  now.received = subject_.queue.received();
  now.trained = subject_.trainer.trained();
  now.predicted_only = subject_.trainer.monitor().tally().predicted_only;
  now.dropped = subject_.queue.dropped() + now.predicted_only;
  now.rejected = subject_.queue.rejected();
  now.loss_last = subject_.log.network().last();
  now.loss_recent = subject_.log.network().recent();
  now.mean_frame_recent = subject_.log.baseline().recent();
  now.unexpected = subject_.log.novelty().marked();
  now.events = subject_.log.novelty().events();
  now.deviation = subject_.log.novelty().deviation();
  now.in_event = subject_.log.novelty().in_event();
  now.T = r.T;
  now.T_over_N = r.T_over_N;
  now.bottleneck = r.bottleneck;
  now.bottleneck_stage = r.bottleneck_stage;
  now.step_p50 = r.step_p50;
  now.step_p99 = r.step_p99;
  now.speedup_K = r.speedup_K;
  now.F = r.F;
  now.budget = r.budget;
  const Verdict verdict = subject_.real_time.verdict(r);
  now.holds = verdict.holds;
  now.verdict = verdict.reason;
  now.latency_p50 = r.latency_p50;
  now.latency_p99 = r.latency_p99;
  now.latency_max = r.latency_max;
  now.latency = distribution(subject_.trainer.monitor().latency());
  now.learning_rate = config_.optimizer.lr * subject_.rate.load(std::memory_order_relaxed);
  now.paused = controls_.paused();
  now.saves = subject_.checkpointer ? subject_.checkpointer->written() : 0;
  now.stream = {.connected = health.connected.load(),
                .breaks = health.breaks.load(),
                .reconnects = health.reconnects.load(),
                .frames_since = health.frames_since.load(),
                .lost_upstream = health.lost_upstream.load(),
                .last_error = health.last_error()};
  // A source that never breaks off does not count for itself.
  if (now.stream.frames_since == 0 && now.stream.breaks == 0)
    now.stream.frames_since = now.received;
  return now;
}

void LiveView::add_stages(io::Snapshot& now, const engine::Reading& r) const {
  const engine::Schedule& schedule = subject_.trainer.schedule();
  for (int stage = 0; stage < schedule.stages; ++stage) {
    io::StageState state{.device = subject_.trainer.devices()[schedule.unit(stage, 0)].name(),
                         .replicas = schedule.replicas_of(stage),
                         .compute_ms = r.stage[stage],
                         .handoff_ms = r.handoff[stage],
                         .busy_ms = r.stage_busy[stage],
                         .updates = r.updates[stage],
                         .misses = r.misses[stage],
                         .gradient_age = r.gradient_age[stage],
                         .busy = {}};
    for (int replica = 0; replica < state.replicas; ++replica) {
      const int unit = schedule.unit(stage, replica);
      subject_.trainer.monitor().unit(unit).busy().each(
          [&](double ns, std::int64_t count) { state.busy.add(ns * 1e-9, count); });
    }
    now.stages.push_back(std::move(state));
  }
}

}  // namespace millrace::tools
