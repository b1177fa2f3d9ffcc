#include "tools/app/outputs/live_view.h"

#include <algorithm>
#include <limits>

#include "tools/app/assembly.h"
#include "tools/app/config/task.h"
#include "tools/app/correction_choice.h"
#include "tools/app/ranks/rank_grid.h"

namespace millrace::app {
namespace {

page::Controls::Offered offered(const Request& request, const Records& records) {
  const Config& config = request.config;
  page::Controls::Offered offered = {
      .pause = true,
      .save = records.checkpointer != nullptr && config.pipeline.tensor == 1,
      .learning_rate = config.optimizer.lr > 0 && weights_are_apart(config)};
  if (config.task.labels == "http") {
    offered.labels = config.task.classes;
    offered.hear_label = [labels = request.live_labels](std::string_view text) {
      return labels->hear(text);
    };
  }
  return offered;
}

/// Names of the classes that pixels have; empty: they have none.
std::vector<std::string> pixel_classes(const Config& config, const stages::ImageShape& made) {
  if (!task_type(config.task.kind).pixel_classes()) return {};
  std::vector<std::string> names = config.task.classes;
  for (auto i = std::int64_t(names.size()); i < made.channels - channels_before(config); ++i)
    names.push_back(std::to_string(i));
  return names;
}

/// By pixel of `numbers` [classes][pixels], the class of the largest above `floor`; -1: none is.
void largest(const float* numbers, std::size_t classes, float floor, std::vector<float>& out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    float most = floor;
    out[i] = -1;
    for (std::size_t k = 0; k < classes; ++k) {
      const float number = numbers[k * out.size() + i];
      if (number > most) {
        most = number;
        out[i] = float(k);
      }
    }
  }
}

}  // namespace

LiveView::LiveView(const Request& request, const Intake& intake, Learner& learner,
                   const Records& records)
    : config_(request.config),
      request_(request),
      intake_(intake),
      learner_(learner),
      records_(records),
      correction_(describe_correction(config_, learner.assembled)),
      local_note_(local_note(learner.assembled)),
      controls_(offered(request, records)),
      classes_(pixel_classes(config_, learner.trainer.output_shape())) {
  if (request.options.serve) serve_page();
  if (!config_.mqtt.broker.empty()) join_broker();
}

void LiveView::serve_page() {
  const stages::ImageShape sample = intake_.shape();
  const page::PictureShape shape{int(sample.channels), int(sample.height), int(sample.width)};
  board_ = std::make_unique<page::PictureBoard>(shape, shown_shape(sample));
  page::WebSubject subject{
      .look = [this] { return look(); }, .pictures = board_.get(), .controls = &controls_};
  server_ = std::make_unique<page::WebServer>(
      page::web_options(request_.options.serve_at, request_.options.token), std::move(subject));
}

void LiveView::join_broker() {
  const Alerts* const alerts = records_.alerts.get();
  mqtt_ = std::make_unique<MqttView>(
      MqttViewOptions{.broker = config_.mqtt.broker,
                      .prefix = config_.mqtt.topic_prefix,
                      .discovery_prefix = config_.mqtt.discovery_prefix},
      MqttView::Subject{.look = [this] { return look(); },
                        .snapshot = [alerts] { return alerts ? alerts->last_snapshot() : ""; },
                        .snapshots = alerts && !config_.novelty.snapshots.empty(),
                        .controls = controls_});
}

/// The shape of targets and predictions; those that are not pictures are not shown.
page::PictureShape LiveView::shown_shape(const stages::ImageShape& sample) const {
  const stages::ImageShape& made = learner_.trainer.output_shape();
  if (!classes_.empty()) {
    return {.channels = 1, .height = int(made.height), .width = int(made.width), .classes = true};
  }
  if (!task_type(config_.task.kind).pictures || made.channels != sample.channels) return {};
  return {int(made.channels), int(made.height), int(made.width)};
}

void LiveView::predicted(engine::Sample& sample, float) {
  page::Pictures* const room = board_ ? board_->room() : nullptr;
  if (!room) return;
  const float *target = sample.shown_target().data(), *prediction = sample.prediction().data();
  std::copy_n(sample.shown_input().data(), room->input.size(), room->input.begin());
  if (classes_.empty()) {
    std::copy_n(target, room->target.size(), room->target.begin());
    std::copy_n(prediction, room->prediction.size(), room->prediction.begin());
  } else {
    const std::size_t before = std::size_t(channels_before(config_)) * room->target.size();
    largest(target + before, classes_.size(), 0, room->target);
    largest(prediction + before, classes_.size(), -std::numeric_limits<float>::infinity(),
            room->prediction);
  }
  if (!sample.info.has_target) {
    std::fill(room->target.begin(), room->target.end(), std::numeric_limits<float>::quiet_NaN());
  }
  board_->show(sample.info.index);
}

void LiveView::obey() {
  if (const auto rate = controls_.take_learning_rate())
    learner_.rate = *rate / config_.optimizer.lr;
  engine::Checkpointer* const checkpointer = records_.checkpointer.get();
  if (!checkpointer) return;
  const std::int64_t saves = checkpointer->written() + checkpointer->failed();
  if (controls_.take_save()) {
    // Beyond what any stage can be at by now.
    checkpointer->ask(learner_.trainer.trained() + 4 * learner_.trainer.schedule().slots());
    saves_before_ = saves;
    saving_ = true;
  } else if (saves > saves_before_) {
    saving_ = false;
  }
}

std::string LiveView::trouble() const {
  const std::string checkpoint = records_.checkpoint_error(), log = records_.log_error();
  if (!checkpoint.empty()) return "checkpoint: " + checkpoint;
  return log.empty() ? "" : "log: " + log;
}

page::Snapshot LiveView::look() const {
  engine::Trainer& trainer = learner_.trainer;
  const engine::LossGuard::Told guard = trainer.guard().told();
  const capture::RateInForce rate = trainer.rate();
  const Novelty& novelty = records_.log.novelty();
  page::Snapshot now{
      .version = MILLRACE_VERSION,
      .source = request_.source(),
      .task = config_.task.kind,
      .schedule = trainer.schedule().name,
      .cut = trainer.cut(),
      .correction = correction_,
      .local_note = local_note_,
      .frames_before = request_.resumed.frames,
      .stages = stages(),
      .classes = classes_,
      .frames = intake_.frames(trainer.monitor().tally().counts()),
      .loss_last = records_.log.network().last(),
      .loss_recent = records_.log.network().recent(),
      .mean_frame_recent = records_.log.baseline().recent(),
      .last_frame_recent = records_.log.losses().last_frame.recent(),
      .linear_recent = records_.log.losses().linear.recent(),
      .unexpected = novelty.marked(),
      .events = novelty.events(),
      .deviation = novelty.deviation(),
      .in_event = novelty.in_event(),
      .reading = trainer.monitor().read(),
      .latency = trainer.monitor().latency(),
      .rate_in_force = rate.lr,
      .backed_off = rate.backed_off,
      .roll_backs = guard.roll_backs,
      .last_roll_back = guard.last_frame,
      .learning_rate = config_.optimizer.lr * learner_.rate.load(std::memory_order_relaxed),
      .paused = controls_.paused(),
      .saves = records_.checkpointer ? records_.checkpointer->written() : 0,
      .label = request_.live_labels ? request_.live_labels->now() : "",
      .notice = saving_ && !intake_.health->connected ? "it saves when pictures come again" : "",
      .failed_saves = records_.checkpointer ? records_.checkpointer->failed() : 0,
      .trouble = trouble()};
  const RunLog& log = records_.log;
  const Standing standing = log.standing();
  now.strongest = standing.strongest;
  now.times = standing.times;
  if (const ClassScores* const classes = log.classes()) {
    now.accuracy = {classes->hits().recent(), classes->majority_hits().recent()};
    if (classes->pixels())
      now.iou = {classes->overlap().recent(), classes->majority_overlap().recent()};
  }
  const Compared* const squared = log.squared();
  if (squared && squared->network.count() > 0) {
    now.psnr = {psnr(squared->network.recent()), psnr(squared->mean_frame.recent()),
                psnr(squared->last_frame.recent())};
  }
  now.verdict = learner_.real_time.verdict(now.reading);
  const io::StreamHealth& health = *intake_.health;
  now.stream = {.connected = health.connected.load(),
                .breaks = health.breaks.load(),
                .reconnects = health.reconnects.load(),
                .frames_since = health.frames_since.load(),
                .lost_upstream = health.lost_upstream.load(),
                .last_error = health.last_error()};
  // A source that never breaks off does not count for itself.
  if (now.stream.frames_since == 0 && now.stream.breaks == 0)
    now.stream.frames_since = now.frames.received;
  return now;
}

std::vector<page::StageState> LiveView::stages() const {
  const engine::Schedule& schedule = learner_.trainer.schedule();
  std::vector<page::StageState> stages(std::size_t(schedule.stages));
  const std::vector<engine::DeadUnits> dead = learner_.trainer.dead_units();
  for (int stage = 0; stage < schedule.stages; ++stage) {
    page::StageState& state = stages[std::size_t(stage)];
    state.device = learner_.trainer.devices()[schedule.replica_id(stage, 0)].name();
    state.replicas = schedule.replicas_of(stage);
    state.dead = dead[std::size_t(stage)].dead;
    state.units = dead[std::size_t(stage)].units;
    for (int replica = 0; replica < state.replicas; ++replica)
      state.busy += learner_.trainer.monitor().meter(schedule.replica_id(stage, replica)).measured().busy;
  }
  return stages;
}

}  // namespace millrace::app
