#include "tools/app/given_run.h"

#include <ATen/ATen.h>
#include <algorithm>
#include <deque>
#include <future>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "io/source/timeline.h"
#include "stages/loss.h"
#include "tools/app/assembly.h"
#include "tools/app/outputs/results.h"
#include "tools/app/parts.h"

namespace millrace::app {
namespace {

using namespace std::chrono_literals;

/// `config` for frames of `shape`, checked for what given frames can't have.
Config for_given(Config config, const stages::ImageShape& shape, bool targets) {
  settle(config);
  const auto refuse = [&](const char* key, bool set, const char* why) {
    if (set) throw config.error(key, std::string("frames that the caller gives are ") + why);
  };
  refuse("replay.kind", config.replay.kind != "none", "not replayed");
  refuse("source.uris", config.source.uris.size() > 1, "one rank's");
  refuse("pipeline.tensor", config.pipeline.tensor > 1, "one rank's");
  // Scores are of classes, whatever gives them.
  if (targets && (!config.places.contains("task.kind") || config.task.kind == "next-frame"))
    config.task.kind = stages::Loss(config.task.loss).scores() ? "label" : "autoencode";
  config.source.channels = int(shape.channels);
  config.source.height = int(shape.height);
  config.source.width = int(shape.width);
  config.source.roi.clear();
  config.task.labels.clear();
  config.checkpoint = {};
  config.output = {};
  return config;
}

at::Tensor tensor_of(const NamedWeights& one) {
  std::int64_t count = 1;
  for (const std::int64_t side : one.shape) count *= side;
  if (count != std::int64_t(one.values.size()))
    throw std::invalid_argument("\"" + one.name + "\" has not the values that its shape says");
  at::Tensor tensor = at::empty(one.shape, at::kFloat);
  std::copy(one.values.begin(), one.values.end(), tensor.mutable_data_ptr<float>());
  return tensor;
}

}  // namespace

void check_modules(const Config& config, std::int64_t modules) {
  const stages::ImageShape shape{3, 8, 8};
  Config stand_in = for_given(config, shape, true);
  stand_in.task = {.kind = "autoencode"};
  stand_in.weights.file.clear();
  stand_in.model = {.preset = "layers"};
  stand_in.model.layer.assign(std::size_t(modules), {.type = "relu"});
  assemble(stand_in, shape, nullptr, true);
}

int context_of(const Config& config) {
  return forecast_of(config).context;
}

struct GivenRun::Parts {
  Parts(const Config& given, const stages::ImageShape& shape, bool with_targets, bool live)
      : config(for_given(given, shape, with_targets)), frame(shape), targets(with_targets) {
    build(live);
  }
  ~Parts() {
    if (!running.valid()) return;
    queue().stop();
    queue().close();
    // The last stage may wait for room.
    for (Results::Entry entry; running.wait_for(0s) != std::future_status::ready;)
      results->take(entry, 10ms);
  }

  /// A run that starts with the config's weights or what was learned.
  void build(bool live) {
    auto stream = std::make_shared<GivenStream>();
    stream->shape = {frame.channels, frame.height, frame.width};
    stream->targets = targets;
    stream->live = live;
    stream->adjust = [this](engine::TrainerOptions& options) {
      if (learned.empty()) return;
      options.weights = std::move(learned);
      options.cut = cut;
    };
    ready = {};
    stream->ready = [this] { ready.set_value(); };
    run.reset();
    run = std::make_unique<Run>(config, RunOptions{.given = std::move(stream)});
    run->on_tick([this] { answer(false); });
    ran = false;
    is_live = live;
  }
  /// A run that goes on from `state` instead.
  void rebuild(stages::StateDict state, bool live) {
    cut = trainer().cut();
    learned = std::move(state);
    build(live);
  }
  /// Gives the report to the threads that wait for it. Called by the run's thread.
  void answer(bool ended) {
    const std::lock_guard lock(mutex);
    for (std::promise<std::string>* const one : asking) one->set_value(run->report());
    asking.clear();
    learning = !ended;
  }

  RunParts& parts() const { return run->parts(); }
  engine::Trainer& trainer() const { return parts().learner.trainer; }
  io::FrameQueue& queue() const { return parts().intake.queue; }

  /// Holds results back until their update is complete.
  void take(const Results::Entry& entry) {
    held.emplace_back(entry, results->prediction(entry));
    if (int(held.size()) % trainer().schedule().samples_a_choice() == 0) complete = held.size();
  }
  /// After the engine has ended. Samples that no update covers have no result.
  void finish() {
    closed = true;
    held.resize(complete);
    running.get();
  }

  const Config config;
  const stages::ImageShape frame;
  const bool targets;
  stages::StateDict learned;  ///< what the next run starts from; empty: the config's weights
  std::vector<int> cut;
  std::unique_ptr<Run> run;
  bool ran = false, is_live = false;
  std::promise<void> ready;
  std::mutex mutex;  ///< of the next two
  bool learning = false;
  std::vector<std::promise<std::string>*> asking;  ///< for a report
  // Of the latest start().
  std::unique_ptr<Results> results;
  std::future<void> running;
  bool closed = true;
  std::deque<std::pair<Results::Entry, std::vector<float>>> held;  ///< with the predictions
  std::size_t complete = 0;  ///< the first so many of `held` may be returned
  // The giver's.
  std::int64_t given = 0;
  std::optional<io::Timeline> timeline;
  engine::Clock::time_point last;
};

GivenRun::GivenRun(const Config& config, const stages::ImageShape& frame, bool targets, bool live)
    : parts_(std::make_unique<Parts>(config, frame, targets, live)) {}

GivenRun::~GivenRun() = default;

void GivenRun::start(const GivenPace& pace) {
  Parts& p = *parts_;
  if (!over()) throw std::logic_error("it runs already");
  if (p.ran || p.is_live != pace.live) p.rebuild(p.trainer().checkpoint(), pace.live);
  p.ran = true;
  const engine::Schedule& schedule = p.trainer().schedule();
  p.results =
      std::make_unique<Results>(p.trainer().target_elements(),
                                std::size_t(std::max(pace.ahead, 1) + schedule.samples_a_choice()));
  p.parts().records.observers.add(p.results.get());
  p.closed = false;
  p.held.clear();
  p.complete = 0;
  p.given = 0;
  p.timeline.emplace(0ns, 10s);
  const std::future<void> ready = p.ready.get_future();
  p.learning = true;
  p.running = std::async(std::launch::async, [&p] {
    struct Close {
      Parts& p;
      ~Close() {
        p.answer(true);
        p.results->close();
      }
    } const close{p};
    p.run->learn();
  });
  while (ready.wait_for(1ms) != std::future_status::ready &&
         p.running.wait_for(0s) != std::future_status::ready) {
  }
}

std::int64_t GivenRun::give(const float* input, const float* target, double time) {
  Parts& p = *parts_;
  io::Frame& frame = p.queue().writable();
  frame.width = int(p.frame.width);
  frame.height = int(p.frame.height);
  frame.channels = int(p.frame.channels);
  frame.values.assign(input, input + frame.bytes());
  frame.target.clear();
  if (target) frame.target.assign(target, target + p.trainer().target_elements());
  frame.captured = engine::Clock::now();
  const io::Timeline::nanoseconds stamp(std::int64_t(1e9 * time));
  frame.pts = p.timeline->map(stamp, p.is_live && p.given > 0 ? frame.captured - p.last : 0ns);
  p.last = frame.captured;
  if (p.is_live || time != 0) p.parts().intake.given_fps.store(p.timeline->rate());
  const bool wanted = p.queue().push();
  return wanted ? p.given++ : -1;
}

void GivenRun::end() {
  parts_->queue().close();
}

void GivenRun::stop() {
  parts_->queue().stop();
  parts_->queue().close();
}

std::optional<GivenResult> GivenRun::next(std::chrono::milliseconds patience) {
  Parts& p = *parts_;
  for (Results::Entry entry; p.complete == 0;) {
    if (p.closed || !p.results->take(entry, patience)) return std::nullopt;
    if (entry.index < 0) {
      p.finish();
      return std::nullopt;
    }
    p.take(entry);
  }
  auto& [first, prediction] = p.held.front();
  const std::chrono::duration<double, std::milli> latency = engine::Clock::now() - first.captured;
  GivenResult result{first.index, first.frame, first.loss, latency.count(), std::move(prediction)};
  p.held.pop_front();
  --p.complete;
  return result;
}

bool GivenRun::over() const {
  return parts_->closed && parts_->complete == 0;
}

stages::ImageShape GivenRun::prediction_shape() const {
  return parts_->trainer().output_shape();
}

int GivenRun::frames_an_update() const {
  return int(parts_->trainer().schedule().samples_a_choice());
}

std::vector<std::int64_t> GivenRun::gradient_age() const {
  const engine::Trainer& trainer = parts_->trainer();
  return trainer.correction().kind == "local" ? engine::own_gradient_ages(trainer.schedule())
                                              : engine::gradient_ages(trainer.schedule());
}

std::vector<NamedWeights> GivenRun::weights() const {
  if (!parts_->closed) throw std::logic_error("weights are read when the run is over");
  std::vector<NamedWeights> all;
  for (const auto& [name, tensor] : parts_->trainer().state()) {
    const at::Tensor plain = tensor.contiguous();
    const float* const values = plain.const_data_ptr<float>();
    all.push_back({name, plain.sizes().vec(), {values, values + plain.numel()}});
  }
  return all;
}

void GivenRun::set_weights(const std::vector<NamedWeights>& weights) {
  Parts& p = *parts_;
  if (!p.closed) throw std::logic_error("weights are set when the run is over");
  stages::StateDict state = p.trainer().checkpoint();
  std::unordered_map<std::string, at::Tensor> given;
  for (const NamedWeights& one : weights) given[one.name] = tensor_of(one);
  for (auto& [name, tensor] : state) {
    const auto found = given.find(name);
    if (found == given.end()) continue;
    if (found->second.sizes() != tensor.sizes())
      throw std::invalid_argument("\"" + name + "\" has another shape than the network's");
    tensor = found->second;
  }
  p.rebuild(std::move(state), p.is_live);
}

std::string GivenRun::report() const {
  Parts& p = *parts_;
  std::promise<std::string> report;
  {
    const std::lock_guard lock(p.mutex);
    if (!p.learning) return p.run->report();
    p.asking.push_back(&report);
  }
  return report.get_future().get();
}

std::vector<std::string> GivenRun::remarks() const {
  return parts_->run->remarks();
}

}  // namespace millrace::app
