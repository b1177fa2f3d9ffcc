#include <limits>

#include "tools/app/outputs/records.h"
#include "tools/page/event_store.h"

namespace millrace::app {
namespace {

NoveltyOptions novelty_options(const Config& config, const Intake& intake) {
  NoveltyOptions options{.minimum = int(config.novelty.minimum),
                         .cooldown = config.novelty.cooldown,
                         .zones = config.novelty.zones,
                         .ignored = config.novelty.ignore,
                         .fps = intake.fps()};
  if (config.novelty.threshold > 0) options.threshold = config.novelty.threshold;
  for (std::size_t i = 0; i < kReasons; ++i)
    if (std::ranges::find(config.novelty.reasons, kReasonNames[i]) == config.novelty.reasons.end())
      options.without.push_back(Reason(i));
  require_zones(config, int(intake.shape().width), int(intake.shape().height));
  return options;
}

std::unique_ptr<Answers> make_answers(const Request& request, const Intake& intake,
                                      const Learner& learner) {
  const Config& config = request.config;
  if (config.task.kind != "label") return nullptr;
  return std::make_unique<Answers>(intake.shape(), stages::Loss(config.task.loss).scores(),
                                   learner.memory ? learner.memory->likeness() : learner.known,
                                   learner.memory != nullptr, request.classes);
}

/// The largest of `values`; -1: all are 0.
int largest(std::span<const float> values) {
  const auto most = std::ranges::max_element(values);
  return *most > 0 ? int(most - values.begin()) : -1;
}

}  // namespace

Records::Records(Request& request, const Intake& intake, Learner& learner)
    : answers(make_answers(request, intake, learner)),
      log(request.config, learner.trainer, learner.memory ? ClassMemory::kJudged : 1),
      novelty(int(intake.shape().channels), int(intake.shape().height), int(intake.shape().width),
              novelty_options(request.config, intake)) {
  const Config& config = request.config;
  engine::Trainer& trainer = learner.trainer;
  const page::EventStore earlier(config.novelty.snapshots);
  const stages::ImageShape shape = intake.shape();
  for (const auto& box :
       earlier.normal_places(io::redacted(config.source.uri), int(shape.width), int(shape.height)))
    novelty.accept(box);
  if (learner.replay) {
    observers.add_for_all(learner.replay.get());
    log.keep_pictures(trainer.in_slot(0));
  }
  if (!request.options.trace.empty()) {
    actions = std::make_unique<engine::ActionLog>(int(trainer.schedule().workers.size()),
                                                  engine::ActionLog::kCapacity,
                                                  request.options.trace_operators);
    observers.add([this, &queue = intake.queue](engine::Sample& sample, float) {
      const engine::Clock::time_point now = engine::Clock::now();
      const io::FrameCounts frames = queue.counts();
      const std::chrono::duration<double, std::milli> latency = now - sample.info.captured;
      actions->count(
          {.waiting = frames.waiting(), .dropped = frames.dropped, .latency_ms = latency.count()},
          now);
    });
  }
  if (answers) observers.add(answers.get());  // first: the video shows it
  if (!config.output.video.empty()) {
    video = std::make_unique<VideoOut>(intake.shape(), intake.info.fps, config.output.video,
                                       !intake.live, answers.get());
    observers.add(video.get());
  }
  observers.add(&log);  // first: the observers below read its histories
  observers.add([this](engine::Sample& sample, float loss) {
    if (const float* const picture = newest(sample))
      novelty.see({.picture = picture,
                   .loss = sample.info.has_target ? loss : std::numeric_limits<float>::quiet_NaN(),
                   .frame = log.frame_of(sample.info),
                   .seconds = log.seconds_of(sample.info)});
  });
  if (ClassMemory* const memory = learner.memory.get()) {
    observers.add([this, memory, &learner](engine::Sample& sample, float) {
      const double seconds = log.seconds_of(sample.info);
      learner.forget(seconds);
      const int label = sample.info.has_target ? largest(sample.shown_target()) : -1;
      memory->see(sample.shown_context(), label, answers->now().label, seconds);
    });
  }
  if (!config.output.log.empty()) {
    lines = std::make_unique<FrameLog>(
        config.output.log, config.output.log_every,
        LogSubject{trainer.monitor(), intake.queue, log.network(), log.baseline(), novelty,
                   learner.assembled.correction.kind, answers.get()});
    if (!request.resumed.path.empty()) lines->resumed(request.resumed.frames);
    observers.add(lines.get());
  }
  raise_alerts(config, intake, trainer);
  sinks = std::move(request.sinks);
  for (const auto& sink : sinks)
    add([to = sink.get()](const Prediction& prediction) { to->see(prediction); });
}

void Records::add(std::function<void(const Prediction&)> see) {
  observers.add([see = std::move(see)](engine::Sample& sample, float loss) {
    const engine::SampleInfo& info = sample.info;
    const std::chrono::duration<double, std::milli> latency = info.predicted - info.captured;
    see({.index = info.index,
         .frame = info.frame,
         .loss = loss,
         .latency_ms = latency.count(),
         .input = sample.shown_input(),
         .target = info.has_target ? sample.shown_target() : std::span<const float>(),
         .prediction = sample.prediction()});
  });
}

void Records::raise_alerts(const Config& config, const Intake& intake,
                           const engine::Trainer& trainer) {
  const auto& to = config.novelty;
  if (to.snapshots.empty() && to.webhook.empty() && to.mqtt.empty()) return;
  const stages::ImageShape picture = intake.shape();
  const std::size_t elements = std::size_t(picture.elements());
  const bool predicted =
      task_type(config.task.kind).pictures && trainer.options().target_elements() == elements;
  alerts = std::make_unique<Alerts>(AlertOptions{.snapshots = to.snapshots,
                                                 .webhook = to.webhook,
                                                 .mqtt = to.mqtt,
                                                 .topic = to.topic,
                                                 .source = config.source.uri,
                                                 .channels = int(picture.channels),
                                                 .height = int(picture.height),
                                                 .width = int(picture.width),
                                                 .clip_seconds = predicted ? to.clip_seconds : 0,
                                                 .fps = intake.info.fps});
  observers.add(
      [this, predicted, usual = std::vector<float>(elements),
       difference = std::vector<float>(elements)](engine::Sample& sample, float loss) mutable {
        const float* const frame = newest(sample);
        if (!frame) return;
        if (predicted) alerts->film(frame, sample.prediction().data(), log.seconds_of(sample.info));
        const NoveltyEvent* const event = novelty.begun();
        if (!event) return;
        novelty.compare(usual, difference);
        alerts->raise({.event = *event, .loss = loss}, {frame, usual.data(), difference.data()});
      });
}

const float* Records::newest(engine::Sample& sample) const {
  if (!log.later_frame()) return sample.shown_input().data();
  return sample.info.has_target ? sample.shown_target().data() : nullptr;
}

}  // namespace millrace::app
