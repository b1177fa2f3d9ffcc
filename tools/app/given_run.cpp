#include "tools/app/given_run.h"

#include <ATen/ATen.h>
#include <algorithm>
#include <deque>
#include <future>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_map>

#include "engine/trainer/trainer.h"
#include "stages/loss.h"
#include "tools/app/assembly.h"
#include "tools/app/correction_choice.h"
#include "tools/app/feeds/given_feed.h"
#include "tools/app/outputs/report.h"

namespace millrace::app {
namespace {

/// `config` made consistent, and checked for what given samples can't have.
Config settled(Config config, bool targets) {
  settle(config);
  const auto refuse = [&](const char* key, bool set, const char* why) {
    if (set) throw config.error(key, std::string("samples that the caller gives are ") + why);
  };
  refuse("replay.kind", config.replay.kind != "none", "not replayed");
  refuse("source.uris", config.source.uris.size() > 1, "one rank's");
  refuse("pipeline.tensor", config.pipeline.tensor > 1, "one rank's");
  // Scores are of classes, whatever gives them.
  if (targets && stages::Loss(config.task.loss).scores() && !config.places.contains("task.kind"))
    config.task.kind = "label";
  return config;
}

engine::TrainerOptions options_for(const Config& config, const stages::ImageShape& sample,
                                   bool targets) {
  engine::TrainerOptions options = assemble(config, sample, nullptr, targets);
  options.input_as_bytes = options.target_as_bytes = false;
  return options;
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
  Config stand_in = settled(config, true);
  stand_in.task.kind = "autoencode";
  stand_in.task.loss = {};
  stand_in.weights.file.clear();
  stand_in.checkpoint = {};
  stand_in.model = {.preset = "layers"};
  stand_in.model.layer.assign(std::size_t(modules), {.type = "relu"});
  assemble(stand_in, {3, 8, 8}, nullptr, true);
}

struct GivenRun::Parts {
  Parts(const Config& given, const stages::ImageShape& sample_shape, bool with_targets)
      : config(settled(given, with_targets)),
        sample(sample_shape),
        options(options_for(config, sample, with_targets)),
        trainer(std::make_unique<engine::Trainer>(options)) {
    options.cut = trainer->cut();
  }
  ~Parts() {
    if (!running.valid()) return;
    feed->stop();
    // The last stage may wait for room.
    for (Results::Entry entry; !done();) results->take(entry, std::chrono::milliseconds(10));
  }

  bool done() const {
    return running.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  std::size_t samples_an_update() const {
    return std::size_t(trainer->schedule().samples_a_choice());
  }
  void take(const Results::Entry& entry) {
    held.push_back({entry.index, entry.loss, entry.latency_ms, results->place(entry.index)});
    if (held.size() < samples_an_update()) return;
    ready.insert(ready.end(), std::make_move_iterator(held.begin()),
                 std::make_move_iterator(held.end()));
    held.clear();
  }
  /// After the engine has ended. Samples that no update covers have no result.
  void finish() {
    closed = true;
    held.clear();
    outcome = running.get();
  }

  const Config config;
  const stages::ImageShape sample;
  engine::TrainerOptions options;
  std::unique_ptr<engine::Trainer> trainer;
  bool ran = false;
  // Of the latest start().
  std::size_t ahead = 1;
  std::unique_ptr<GivenFeed> feed;
  std::unique_ptr<Results> results;
  std::future<engine::Outcome> running;
  std::int64_t given = 0, back = 0;  ///< number of samples given, and of predictions returned
  bool ended = false, closed = true;
  std::vector<GivenResult> held;  ///< of an incomplete update
  std::deque<GivenResult> ready;
  engine::Outcome outcome;
  std::int64_t trained_before = 0;
};

GivenRun::GivenRun(const Config& config, const stages::ImageShape& sample, bool targets)
    : parts_(std::make_unique<Parts>(config, sample, targets)) {}

GivenRun::~GivenRun() = default;

void GivenRun::start(int ahead) {
  Parts& p = *parts_;
  if (!over()) throw std::logic_error("it runs already");
  p.ahead = std::size_t(std::max(ahead, 1));
  if (p.ran) p.trainer->recut(p.trainer->cut());
  p.ran = true;
  const std::size_t places =
      p.ahead + std::size_t(p.trainer->schedule().slots()) + p.samples_an_update();
  p.feed = std::make_unique<GivenFeed>(p.ahead);
  p.results = std::make_unique<Results>(p.trainer->target_elements(), places);
  p.given = p.back = 0;
  p.ended = p.closed = false;
  p.held.clear();
  p.ready.clear();
  p.outcome = {};
  p.trained_before = p.trainer->trained();
  p.running = std::async(std::launch::async, [&p] {
    struct Close {
      Results& results;
      ~Close() { results.close(); }
    } const close{*p.results};
    return p.trainer->run(*p.feed, p.results.get());
  });
}

bool GivenRun::has_room() const {
  const Parts& p = *parts_;
  return !p.ended && p.given - p.back < std::int64_t(p.results->places()) &&
         std::size_t(p.feed->waiting()) < p.ahead;
}

int GivenRun::waiting() const {
  return parts_->feed->waiting();
}

void GivenRun::give(const float* input, const float* target) {
  if (!has_room()) throw std::logic_error("no room for a sample");
  parts_->feed->give({input, target});
  ++parts_->given;
}

void GivenRun::end() {
  if (!std::exchange(parts_->ended, true)) parts_->feed->give({});
}

void GivenRun::stop() {
  parts_->ended = true;
  parts_->feed->stop();
}

std::optional<GivenResult> GivenRun::next(std::chrono::milliseconds patience) {
  Parts& p = *parts_;
  for (Results::Entry entry; p.ready.empty();) {
    if (p.closed || !p.results->take(entry, patience)) return std::nullopt;
    if (entry.index < 0) {
      p.finish();
      return std::nullopt;
    }
    ++p.back;
    p.take(entry);
  }
  GivenResult result = std::move(p.ready.front());
  p.ready.pop_front();
  return result;
}

bool GivenRun::over() const {
  return parts_->closed && parts_->ready.empty();
}

const stages::ImageShape& GivenRun::prediction_shape() const {
  const stages::Network& network = *parts_->options.network;
  return network.shape(network.size() - 1);
}

std::vector<std::int64_t> GivenRun::gradient_age() const {
  const engine::Schedule& schedule = parts_->trainer->schedule();
  return parts_->options.correction.kind == "local" ? engine::own_gradient_ages(schedule)
                                                    : engine::gradient_ages(schedule);
}

std::vector<NamedWeights> GivenRun::weights() const {
  if (!parts_->closed) throw std::logic_error("weights are read when the run is over");
  std::vector<NamedWeights> all;
  for (const auto& [name, tensor] : parts_->trainer->state()) {
    const at::Tensor plain = tensor.contiguous();
    const float* const values = plain.const_data_ptr<float>();
    all.push_back({name, plain.sizes().vec(), {values, values + plain.numel()}});
  }
  return all;
}

void GivenRun::set_weights(const std::vector<NamedWeights>& weights) {
  Parts& p = *parts_;
  if (!p.closed) throw std::logic_error("weights are set when the run is over");
  stages::StateDict state = p.trainer->checkpoint();
  std::unordered_map<std::string, at::Tensor> given;
  for (const NamedWeights& one : weights) given[one.name] = tensor_of(one);
  for (auto& [name, tensor] : state) {
    const auto found = given.find(name);
    if (found == given.end()) continue;
    if (found->second.sizes() != tensor.sizes())
      throw std::invalid_argument("\"" + name + "\" has another shape than the network's");
    tensor = found->second;
  }
  p.options.weights = std::move(state);
  p.trainer.reset();
  p.trainer = std::make_unique<engine::Trainer>(p.options);
  p.options.weights.clear();
  p.ran = false;
}

std::string GivenRun::report() const {
  Parts& p = *parts_;
  const std::int64_t trained = p.trainer->trained() - p.trained_before;
  // Until the run is over, only what has been trained is known.
  engine::FrameCounts frames{.received = p.given, .trained = trained};
  if (p.closed) frames.dropped = p.given - p.outcome.admitted;
  frames.rejected = p.outcome.rejected + p.outcome.untold;
  nlohmann::ordered_json report =
      trainer_report(*p.trainer, p.trainer->monitor().read(), frames, p.closed && p.ran);
  if (p.closed) report["frames"]["in_flight"] = 0;
  return report.dump();
}

std::vector<std::string> GivenRun::remarks() const {
  std::vector<std::string> all;
  for (const std::string& line : parts_->options.network->remarks) all.push_back("model: " + line);
  all.push_back("correction: " + describe_correction(parts_->config, parts_->options));
  return all;
}

}  // namespace millrace::app
