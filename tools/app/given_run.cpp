#include "tools/app/given_run.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "io/queue/planar.h"
#include "stages/loss.h"
#include "tools/app/alerts/alerts.h"
#include "tools/app/assembly.h"
#include "tools/app/config/task.h"
#include "tools/app/parts.h"

namespace millrace::app {
namespace {

using namespace std::chrono_literals;

/// `asked` for frames of `shape`; throws ConfigError for keys that given frames can't have.
Config for_given(const Config& asked, const stages::ImageShape& shape, bool targets) {
  Config config = settled(asked);
  const auto refuse = [&](const char* key, bool set, const char* why) {
    if (set) throw config.error(key, std::string("frames that the caller gives are ") + why);
  };
  refuse("replay.kind", replay_kind(config.replay.kind).has_value(), "not replayed");
  refuse("source.uris", config.source.uris.size() > 1, "one rank's");
  refuse("pipeline.tensor", config.pipeline.tensor > 1, "one rank's");
  // A loss of class scores needs classes, with any kind of target.
  if (targets && (!config.places.contains("task.kind") || config.task.kind == "next-frame"))
    config.task.kind = stages::Loss(config.task.loss).scores() ? "label" : "autoencode";
  config.source.channels = int(shape.channels);
  config.source.height = int(shape.height);
  config.source.width = int(shape.width);
  config.source.roi.clear();
  if (told_live(config)) config.task.labels.clear();
  config.checkpoint = {};
  config.output = {};
  for (std::string* const to : {&config.novelty.snapshots, &config.novelty.webhook,
                                &config.novelty.mqtt, &config.mqtt.broker})
    to->clear();
  config.novelty.clip_seconds = 0;
  return config;
}

std::unique_ptr<io::Source> told_source(const Config& config) {
  const TaskType& task = task_type(config.task.kind);
  if (task.gives != stages::Gives::picture && task.target != TargetFrom::label)
    throw config.error("task.kind", task.name + ": give (frame, target) pairs");
  std::optional<io::Labels> labels = configured_labels(config);
  std::unique_ptr<io::Source> source = io::open_source(source_options(config));
  return labels ? io::with_teller(std::move(source), io::teller_of(*std::move(labels)))
                : std::move(source);
}

at::Tensor copy_of(const float* values, const stages::ImageShape& shape) {
  at::Tensor copy = at::empty({shape.channels, shape.height, shape.width}, at::kFloat);
  std::copy_n(values, copy.numel(), copy.mutable_data_ptr<float>());
  return copy;
}

}  // namespace

void check_modules(const Config& config, std::int64_t modules) {
  const stages::ImageShape shape{3, 8, 8};
  Config stand_in = for_given(config, shape, true);
  stand_in.task = {.kind = "autoencode"};
  stand_in.replay = {};
  stand_in.weights.file.clear();
  stand_in.model = {.preset = "layers"};
  stand_in.model.layer.assign(std::size_t(modules), {"relu"});
  assemble(stand_in, shape, nullptr, true);
}

GivenFrames::GivenFrames(const Config& config)
    : config_(config), intake_(config_, [this] { return told_source(config_); }) {
  intake_.start();
}

std::optional<GivenFrame> GivenFrames::next(std::chrono::milliseconds patience) {
  const bool drained = intake_.queue.drained();  // read first: a frame may arrive in between
  io::Frame* const frame = intake_.queue.pop(drained ? 0ms : patience);
  if (!frame) {
    if (drained) {
      over_ = true;
      intake_.stop();
      const std::string error = intake_.error();
      if (!error.empty()) throw io::SourceError(error);
    }
    return std::nullopt;
  }
  const io::Frame& fit = intake_.resizer.fit(*frame);
  if (frame->id != last_ + 1 || frame->segment != last_segment_) ++segment_;
  last_ = frame->id;
  last_segment_ = frame->segment;
  time_ = std::chrono::duration<double>(frame->pts).count();
  GivenFrame given{at::empty({fit.channels, fit.height, fit.width}, at::kFloat), frame->label};
  io::to_planar(fit, given.input.mutable_data_ptr<float>());
  intake_.queue.release(frame);
  return given;
}

std::pair<std::int64_t, std::int64_t> GivenFrames::lost() {
  const io::FrameCounts now = intake_.queue.counts(), before = std::exchange(told_, now);
  return {now.dropped - before.dropped, now.rejected - before.rejected};
}

GivenRun::GivenRun(const Config& config, const stages::ImageShape& frame, bool targets, bool live)
    : config_(for_given(config, frame, targets)), frame_(frame), targets_(targets) {
  build(live);
}

GivenRun::~GivenRun() {
  if (!running_.valid()) return;
  stop();
  for (GivenResult result; running_.wait_for(0s) != std::future_status::ready;)
    results_->wait_dequeue_timed(result, 10ms);
}

void GivenRun::build(bool live) {
  auto stream = std::make_shared<GivenStream>();
  stream->shape = {frame_.channels, frame_.height, frame_.width};
  stream->targets = targets_;
  stream->live = live;
  stream->adjust = [this](engine::TrainerOptions& options) {
    if (learned_.empty()) return;
    options.weights = std::move(learned_);
    options.cut = cut_;
  };
  ready_ = {};
  stream->ready = [this] { ready_.set_value(); };
  const std::lock_guard lock(mutex_);  // others may ask for the report
  run_.reset();
  run_ = std::make_unique<Run>(config_, RunOptions{.given = std::move(stream)});
  run_->on_tick([this] { answer(false); });
  ran_ = false;
  live_ = live;
}

void GivenRun::rebuild(stages::StateDict state, bool live) {
  cut_ = trainer().now().cut;
  learned_ = std::move(state);
  build(live);
}

engine::Trainer& GivenRun::trainer() const {
  return run_->parts().learner.trainer;
}

io::FrameQueue& GivenRun::queue() const {
  return run_->parts().intake.queue;
}

void GivenRun::start(bool live, int ahead) {
  if (!over()) throw std::logic_error("already running");
  if (ran_ || live_ != live) rebuild(run_->parts().learner.checkpoint(), live);
  ran_ = true;
  results_ = std::make_unique<Results>(
      std::size_t(std::max(ahead, 1) + trainer().schedule().samples_a_choice()));
  Records& records = run_->parts().records;
  records.observers.add([this, &records](engine::Sample& sample, float loss) {
    const engine::SampleInfo& info = sample.info;
    const float* const picture = records.newest(sample);
    const NoveltyEvent* const event = picture ? records.novelty.begun() : nullptr;
    results_->wait_enqueue({.index = info.index,
                            .frame = info.frame,
                            .loss = loss,
                            .given = info.captured,
                            .picture = picture ? copy_of(picture, frame_) : at::Tensor(),
                            .prediction = copy_of(sample.prediction().data(), prediction_shape()),
                            .novelty = records.novelty.deviation(),
                            .event = event ? event_json(*event).dump() : ""});
  });
  closed_ = false;
  held_.clear();
  complete_ = 0;
  given_ = 0;
  timeline_.emplace(0ns, 10s);
  const std::future<void> ready = ready_.get_future();
  {
    const std::lock_guard lock(mutex_);
    learning_ = true;
  }
  running_ = std::async(std::launch::async, [this] { learn(); });
  while (ready.wait_for(1ms) != std::future_status::ready &&
         running_.wait_for(0s) != std::future_status::ready) {
  }
}

void GivenRun::learn() {
  struct Close {
    GivenRun& of;
    ~Close() {
      of.answer(true);
      of.results_->wait_enqueue({});
    }
  } const close{*this};
  run_->learn();
}

void GivenRun::answer(bool ended) {
  const std::lock_guard lock(mutex_);
  for (std::promise<std::string>* const one : asking_) one->set_value(run_->report());
  asking_.clear();
  learning_ = !ended;
}

std::int64_t GivenRun::give(const float* input, const float* target, double time,
                            std::int64_t segment) {
  io::Frame& frame = queue().writable();
  frame.segment = segment;
  frame.width = int(frame_.width);
  frame.height = int(frame_.height);
  frame.channels = int(frame_.channels);
  frame.values.assign(input, input + frame.bytes());
  frame.target.clear();
  if (target) frame.target.assign(target, target + trainer().options().target_elements());
  frame.captured = engine::Clock::now();
  const double fps = run_->parts().intake.fps();
  constexpr double kWithout = 10;  // a second: without times, each frame is a look for Novelty
  const io::Timeline::nanoseconds stamp =
      io::stamp_of(live_ || time != 0 ? time : double(given_) / (fps > 0 ? fps : kWithout));
  frame.pts = timeline_->map(stamp, live_ && given_ > 0 ? frame.captured - last_ : 0ns);
  last_ = frame.captured;
  if (live_ || time != 0) run_->parts().intake.given_fps.store(timeline_->rate());
  return queue().push() ? given_++ : -1;
}

void GivenRun::end() {
  queue().close();
}

void GivenRun::stop() {
  queue().stop();
  queue().close();
}

std::optional<GivenResult> GivenRun::next(std::chrono::milliseconds patience) {
  while (complete_ == 0) {
    GivenResult result;
    if (closed_ || !results_->wait_dequeue_timed(result, patience)) return std::nullopt;
    if (result.index < 0) {
      closed_ = true;
      held_.clear();  // samples without an update have no result
      running_.get();
      return std::nullopt;
    }
    held_.push_back(std::move(result));
    if (std::int64_t(held_.size()) % trainer().schedule().samples_a_choice() == 0)
      complete_ = held_.size();
  }
  GivenResult first = std::move(held_.front());
  held_.pop_front();
  --complete_;
  return first;
}

stages::ImageShape GivenRun::prediction_shape() const {
  return trainer().options().output();
}

int GivenRun::frames_an_update() const {
  return int(trainer().schedule().samples_a_choice());
}

std::vector<std::int64_t> GivenRun::gradient_age() const {
  return engine::gradient_ages(trainer().schedule(),
                               trainer().options().correction.kind == "local");
}

stages::StateDict GivenRun::weights() const {
  if (!closed_) throw std::logic_error("weights are read when the run is over");
  stages::StateDict all = trainer().state();
  stages::add_other_names(all, *trainer().options().network);
  for (auto& [name, tensor] : all) tensor = tensor.clone(at::MemoryFormat::Contiguous);
  return all;
}

void GivenRun::set_weights(const stages::StateDict& weights) {
  if (!closed_) throw std::logic_error("weights are set when the run is over");
  stages::StateDict state = trainer().checkpoint();
  for (auto& [name, tensor] : state) {
    const auto given = std::ranges::find(weights, name, &stages::StateDict::value_type::first);
    if (given == weights.end()) continue;
    if (given->second.sizes() != tensor.sizes())
      throw std::invalid_argument("\"" + name + "\" has another shape than the network's");
    tensor = given->second;
  }
  rebuild(std::move(state), live_);
}

std::vector<std::string> GivenRun::remarks() const {
  const std::lock_guard lock(mutex_);
  return run_->remarks();
}

std::string GivenRun::report() const {
  std::promise<std::string> report;
  {
    const std::lock_guard lock(mutex_);
    if (!learning_) return run_->report();
    asking_.push_back(&report);
  }
  return report.get_future().get();
}

}  // namespace millrace::app
