#include "tools/app/outputs/live_view.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/format.h"
#include "tools/app/assembly.h"
#include "tools/app/config/task.h"
#include "tools/app/outputs/class_scores.h"
#include "tools/app/outputs/report.h"
#include "tools/app/ranks/rank_grid.h"

namespace millrace::app {
namespace {

page::Controls::Offered offered(const Request& request, Learner& learner, bool saves) {
  const Config& config = request.config;
  page::Controls::Offered offered = {.pause = true, .save = saves && config.pipeline.tensor == 1};
  if (const double first = learner.first_rate(); first > 0 && weights_are_apart(config))
    offered.set_learning_rate = [&learner, first](double rate) { learner.rate = rate / first; };
  if (config.task.labels == "http") {
    offered.labels = config.task.classes;
    offered.hear_label = [labels = request.live_labels](std::string_view text) {
      return labels->hear(text);
    };
  }
  return offered;
}

/// Names and colours, "#rrggbb", of pixel classes; empty: the task has none.
page::Json pixel_classes(const Config& config, const stages::ImageShape& made) {
  page::Json classes = page::Json::array();
  if (!task_type(config.task.kind).pixel_classes()) return classes;
  const std::vector<std::string>& names = config.task.classes;
  for (std::size_t i = 0; i < std::size_t(made.channels - channels_before(config)); ++i) {
    const auto [red, green, blue] = page::class_colour(int(i));
    classes.push_back({{"name", i < names.size() ? names[i] : std::to_string(i)},
                       {"colour", engine::format("#%02x%02x%02x", red, green, blue)}});
  }
  return classes;
}

/// Which output can't be written; "": none.
std::string trouble(const std::string& checkpoint, const std::string& log) {
  if (!checkpoint.empty()) return "checkpoint: " + checkpoint;
  return log.empty() ? "" : "log: " + log;
}

}  // namespace

LiveView::LiveView(const Request& request, Intake& intake, Learner& learner, Records& records,
                   Checkpoints& checkpoints)
    : request_(request),
      intake_(intake),
      learner_(learner),
      records_(records),
      checkpoints_(checkpoints),
      config_(request.config),
      correction_(describe_correction(config_, learner.assembled)),
      local_note_(local_note(learner.assembled)),
      controls_(offered(request, learner, checkpoints.writer != nullptr)),
      classes_(pixel_classes(config_, learner.trainer.options().output())) {
  if (request.options.serve) serve_page();
  if (!config_.mqtt.broker.empty()) {
    mqtt_ = std::make_unique<MqttView>(
        config_, [this] { return look(); }, records.alerts.get(), controls_);
  }
}

void LiveView::serve_page() {
  const stages::ImageShape sample = intake_.shape(), made = learner_.trainer.options().output();
  const auto shape = [](const stages::ImageShape& of) {
    return page::PictureShape{int(of.channels), int(of.height), int(of.width)};
  };
  page::PictureShape shown;  // targets and predictions; without a size if they are not pictures
  if (!classes_.empty())
    shown = {.channels = 1, .height = int(made.height), .width = int(made.width), .classes = true};
  else if (task_type(config_.task.kind).pictures && made.channels == sample.channels)
    shown = shape(made);
  board_ = std::make_unique<page::PictureBoard>(shape(sample), shown);
  most_.resize(std::size_t(made.height * made.width));
  page::WebSubject subject{.look =
                               [this] {
                                 page::Snapshot now = look();
                                 page::Json& deviation = now.state["novelty"]["deviation"];
                                 deviation = std::max(deviation.get<double>(), peak_.take());
                                 return now;
                               },
                           .pictures = board_.get(),
                           .controls = &controls_};
  subject.camera = show_camera();
  subject.is_normal = [&novelty = records_.novelty](std::int64_t event) {
    return novelty.accept(event);
  };
  if (!config_.novelty.snapshots.empty()) {
    subject.snapshots = config_.novelty.snapshots;
  } else {
    event_board_ = std::make_unique<page::PictureBoard>(shape(sample), page::PictureShape{});
    subject.event_picture = event_board_.get();
  }
  server_ = page::start_server(page::web_options(request_.options.serve_at, request_.options.token),
                               std::move(subject));
}

page::FrameBoard* LiveView::show_camera() {
  const io::ResizerOptions as = resizer_options(config_, intake_.info);
  if (intake_.given || as.fit == io::Fit::pad) return nullptr;  // bars are not in the frame
  camera_ = std::make_shared<page::FrameBoard>();
  intake_.seen = [as, board = camera_](const io::Frame& frame) {  // may outlive this view
    io::Frame* const room = board->room();
    if (!room) return;
    const io::Region view = io::clipped(as.region, frame.width, frame.height);
    const io::Region part = io::place(view, as.width, as.height, as.fit).from;
    *room = io::Resizer({.width = part.width, .height = part.height, .region = part}).fit(frame);
    board->show();
  };
  return camera_.get();
}

void LiveView::show_event(engine::Sample& sample) {
  const std::int64_t events = records_.novelty.events();
  if (!event_board_ || events_ == events) return;
  page::Pictures* const room = event_board_->room();
  if (!room) return;  // with the next sample
  events_ = events;
  // The frame that was to be predicted shows the new object.
  const float* const newest = records_.newest(sample);
  std::copy_n(newest ? newest : sample.shown_input().data(), room->input.size(),
              room->input.begin());
  event_board_->show(sample.info.index);
}

void LiveView::predicted(engine::Sample& sample, float) {
  peak_.see(records_.novelty.deviation());
  show_event(sample);
  page::Pictures* const room = board_ ? board_->room() : nullptr;
  if (!room) return;
  const float *target = sample.shown_target().data(), *prediction = sample.prediction().data();
  std::copy_n(sample.shown_input().data(), room->input.size(), room->input.begin());
  if (classes_.empty()) {
    std::copy_n(target, room->target.size(), room->target.begin());
    std::copy_n(prediction, room->prediction.size(), room->prediction.begin());
  } else {
    const std::size_t before = std::size_t(channels_before(config_)) * room->target.size();
    constexpr float kNone = -1, kLeast = -std::numeric_limits<float>::infinity();
    find_largest(target + before, classes_.size(), 0, kNone, most_, room->target);
    find_largest(prediction + before, classes_.size(), kLeast, kNone, most_, room->prediction);
  }
  if (!sample.info.has_target)
    std::fill(room->target.begin(), room->target.end(), std::numeric_limits<float>::quiet_NaN());
  board_->show(sample.info.index);
}

void LiveView::obey() {
  engine::Checkpointer* const checkpointer = checkpoints_.writer.get();
  if (!checkpointer) return;
  const std::int64_t saves = checkpointer->written() + checkpointer->failed();
  if (controls_.take_save()) {
    // Beyond any sample that a stage may have reached by now.
    checkpointer->ask(learner_.trainer.monitor().trained() +
                      4 * learner_.trainer.schedule().slots());
    saves_before_ = saves;
    saving_ = true;
  } else if (saves > saves_before_) {
    saving_ = false;
  }
}

page::Snapshot LiveView::look() const {
  engine::Trainer& trainer = learner_.trainer;
  const engine::Checkpointer* const checkpointer = checkpoints_.writer.get();
  const std::string label = request_.live_labels ? request_.live_labels->now() : "";
  page::Snapshot now{.state = live_report(request_, intake_, learner_, records_),
                     .frames = learner_.frames(intake_),
                     .latency = trainer.monitor().latency()};
  now.state["classes"] = classes_;
  now.state["correction"] = correction_;
  now.state["local_note"] = local_note_;
  now.state["controls"] = {
      {"paused", controls_.paused()},
      {"learning_rate", learner_.first_rate() * learner_.rate.load(std::memory_order_relaxed)},
      {"saves", checkpointer ? checkpointer->written() : 0},
      {"failed_saves", checkpointer ? checkpointer->failed() : 0},
      {"trouble", trouble(checkpoints_.error(), records_.log_error())},
      {"notice", saving_ && !intake_.health->connected ? "the save waits for the next frame" : ""},
      {"label", label.empty() ? page::Json() : page::Json(label)}};
  const engine::Schedule& schedule = trainer.schedule();
  now.busy.resize(std::size_t(schedule.stages));
  for (int stage = 0; stage < schedule.stages; ++stage) {
    for (int replica = 0; replica < schedule.replicas_of(stage); ++replica)
      now.busy[std::size_t(stage)] +=
          trainer.monitor().meter(schedule.replica_id(stage, replica)).measured().busy;
  }
  return now;
}

}  // namespace millrace::app
