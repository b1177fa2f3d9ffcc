// A stream learned by one rule, without threads or clocks: the oracle, with the loss guard.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <atomic>
#include <cmath>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "engine/pipeline/pinning.h"
#include "engine/plan/balance.h"
#include "engine/trainer/oracle.h"
#include "engine/trainer/stage_building.h"
#include "engine/trainer/trainer.h"
#include "io/queue/planar.h"
#include "io/queue/resizer.h"
#include "io/source/source.h"
#include "tools/bench/measure.h"

namespace millrace::bench {
namespace {

constexpr std::int64_t kHeldOutSpan = 200, kHeldOutEvery = 5;
constexpr std::int64_t kLast = 100, kReturn = 20;

/// A stream in memory: frames to learn from and, from the same scenes, frames that are only looked
/// at.
struct Stream {
  int classes = 0;        ///< 0: frames are to be given back; else their class is to be told
  std::int64_t turn = 0;  ///< frames that a scene stays; 0: one scene
  int scenes = 1;
  std::vector<at::Tensor> frames, held_out;
  std::vector<at::Tensor> targets, held_out_targets;  ///< the frames themselves, or [1,classes,1,1]
};

template <class Losses>
double mean(const Losses& losses, std::int64_t begin, std::int64_t end) {
  begin = std::max<std::int64_t>(begin, 0);
  end = std::min<std::int64_t>(end, std::int64_t(losses.size()));
  if (begin >= end) return 0;
  return std::accumulate(losses.begin() + begin, losses.begin() + end, 0.0) / double(end - begin);
}

/// The PARTIME experiments' basic network with the job's norm; for classes eight convolutions that
/// normalise their maps, since without that so deep a network hardly moves in 600 frames, a mean
/// over twelfths of the picture and a linear layer.
std::shared_ptr<const stages::Network> network_of(const Json& job, const Stream& stream) {
  const at::Tensor& frame = stream.frames.front();
  const stages::ImageShape shape{frame.size(1), frame.size(2), frame.size(3)};
  stages::ModelSpec model{.norm = job.at("norm")};
  if (const double slope = job.at("slope"); slope > 0)
    model.activation = "leaky-relu", model.slope = slope;
  if (stream.classes == 0) return stages::build_network(model, shape);
  model.preset = "layers";
  for (int i = 0; i < 8; ++i) {
    model.layer.push_back({.type = "conv", .out = 16, .kernel = 3});
    model.layer.push_back({.type = "groupnorm", .groups = 4});
    model.layer.push_back({.type = "relu"});
    if (i == 1) model.layer.push_back({.type = "maxpool", .kernel = 2});
  }
  model.layer.push_back({.type = "avgpool", .kernel = 6});
  model.layer.push_back({.type = "flatten"});
  model.layer.push_back({.type = "linear", .out = stream.classes});
  model.layer.push_back({.type = "sigmoid"});
  return stages::build_network(model, shape, stages::Gives::vector);
}

engine::TrainerOptions options_of(const Json& job, const Stream& stream) {
  engine::TrainerOptions options;
  options.capture = engine::Capture::eager;  // as the oracle computes
  const at::Tensor& frame = stream.frames.front();
  options.network = network_of(job, stream);
  options.target_is_input = stream.classes == 0;
  options.sample = {frame.size(1), frame.size(2), frame.size(3)};
  options.schedule = job.at("schedule");
  options.stages = job.at("stages");
  options.microbatches = std::max(4, options.stages);
  std::vector<double> costs;  // a module's weights stand for its time
  for (int i = 0; i < options.network->size(); ++i) {
    double cost = 1;
    for (const auto& spec : options.network->parameters(i, i + 1)) {
      double count = 1;
      for (const std::int64_t side : spec.shape) count *= double(side);
      cost += count;
    }
    costs.push_back(cost);
  }
  options.cut = engine::balanced_cut(costs, options.stages);
  options.optimizer = {.kind = job.at("kind"),
                       .lr = job.at("lr"),
                       .momentum = job.value("momentum", 0.0),
                       .beta1 = job.value("beta1", 0.9),
                       .beta2 = job.value("beta2", 0.999)};
  options.correction.kind = job.at("correction");
  options.weights = stages::initial_state(*options.network, job.at("seed"));
  return options;
}

float counted(float loss) {
  return std::isfinite(loss) ? loss : 1.0f;
}

/// Mean loss on frames not learned from, and the share of them whose class is told.
std::pair<double, double> held_out(const std::vector<stages::Stage>& stages, const Stream& stream) {
  const c10::NoGradGuard no_grad;
  const double share = 1.0 / double(std::max<std::size_t>(stream.held_out.size(), 1));
  double loss = 0, hits = 0;
  for (std::size_t i = 0; i < stream.held_out.size(); ++i) {
    const at::Tensor& target = stream.held_out_targets[i];
    stages::Tensors x = {stream.held_out[i]};
    for (const stages::Stage& stage : stages) {
      const stages::Activations kept = stage.forward(x, target);
      if (stage.range().last) loss += share * counted(kept.loss.item<float>());
      x = kept.outputs;
    }
    if (stream.classes > 0 && at::equal(x[0].argmax(), target.argmax())) hits += share;
  }
  return {loss, hits};
}

/// Streams of scenes: the first scene's loss on its first frames after it came back, over that on
/// its last before; 1: nothing forgotten. 0: no scene came back.
double forgetting(const std::vector<float>& losses, const Stream& stream, std::int64_t every) {
  const std::int64_t left = stream.turn / every, back = stream.scenes * left, few = kReturn / every;
  if (stream.turn == 0 || few == 0 || back + few > std::int64_t(losses.size())) return 0;
  const double before = mean(losses, left - few, left);
  return before > 0 ? mean(losses, back, back + few) / before : 0;
}

/// Reads as many frames as are to be learned from, and then every fifth of the 200 that follow.
Stream read_stream(const Json& about) {
  const int width = about.at("width"), height = about.at("height");
  const std::int64_t learn = about.at("frames");
  Stream stream{.turn = about.at("turn"), .scenes = about.at("scenes")};
  const auto source = io::open_source({.uri = about.at("uri"), .width = width, .height = height});
  io::Resizer resizer(width, height);
  io::Frame frame;
  for (std::int64_t n = 0; n < learn + kHeldOutSpan; ++n) {
    if (source->read(frame, std::chrono::seconds(10)) != io::ReadStatus::frame) break;
    if (n >= learn && n % kHeldOutEvery != 0) continue;
    at::Tensor tensor = at::empty({1, 3, height, width});
    io::to_planar(resizer.fit(frame), tensor.mutable_data_ptr<float>());
    at::Tensor target = tensor;
    if (about.at("labels")) {
      stream.classes = source->info().classes;
      target = at::zeros({1, stream.classes, 1, 1});
      target[0][frame.label] = 1;
    }
    (n < learn ? stream.frames : stream.held_out).push_back(std::move(tensor));
    (n < learn ? stream.targets : stream.held_out_targets).push_back(std::move(target));
  }
  if (std::int64_t(stream.frames.size()) < learn)
    throw std::runtime_error(about.at("uri").get<std::string>() + ": fewer than " +
                             std::to_string(learn) + " frames");
  return stream;
}

/// Losses are of predictions made before learning from the frame. One that is no number counts as
/// 1, the most that a prediction and a target between 0 and 1 can have. Reentrant.
Json score(const Json& job, const Stream& stream) {
  const engine::TrainerOptions options = options_of(job, stream);
  const engine::Schedule schedule = engine::schedule_of(options);
  std::vector<stages::Stage> stages = engine::build_stages(options, schedule);
  const std::int64_t every = job.at("every");  // of a live stream, as many as the learner takes
  const auto sample = [&](std::int64_t n) {
    return std::pair(stream.frames[n * every], stream.targets[n * every]);
  };
  engine::LossGuard guard(2 * schedule.slots());
  std::vector<float> losses = engine::run_oracle(
      schedule, stages, sample, std::int64_t(stream.frames.size()) / every, {}, &guard);
  int no_numbers = 0;
  for (float& loss : losses) {
    no_numbers += !std::isfinite(loss);
    loss = counted(loss);
  }
  const auto count = std::int64_t(losses.size());
  const auto [loss, hits] = held_out(stages, stream);
  return {{"loss", mean(losses, 0, count)},
          {"last_100", mean(losses, count - kLast / every, count)},
          {"held_out", loss},
          {"held_out_hits", hits},
          {"forgetting", forgetting(losses, stream, every)},
          {"roll_backs", guard.roll_backs()},
          {"no_numbers", no_numbers}};
}

/// The mean frame's losses, which a network must beat.
Json mean_frame(const Stream& stream) {
  at::Tensor sum = at::zeros_like(stream.targets[0]);
  std::vector<double> losses;
  for (const at::Tensor& target : stream.targets) {
    const double before = std::max<double>(double(losses.size()), 1);
    losses.push_back((target - sum / before).square().mean().item<double>());
    sum += target;
  }
  const auto count = std::int64_t(losses.size());
  return {{"loss", mean(losses, 0, count)}, {"last_100", mean(losses, count - kLast, count)}};
}

}  // namespace

Json learn(const Json& question) {
  const Stream stream = read_stream(question.at("stream"));
  const Json& jobs = question.at("jobs");
  std::vector<Json> scores(jobs.size());
  std::atomic<std::size_t> next{0};
  std::mutex failing;
  std::exception_ptr failure;
  const auto work = [&] {
    at::set_num_threads(1);  // this thread's own; the jobs are the parallelism
    try {
      for (std::size_t i; (i = next++) < jobs.size();) scores[i] = score(jobs[i], stream);
    } catch (...) {
      const std::lock_guard lock(failing);
      failure = std::current_exception();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < engine::usable_cores(); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  return {{"classes", stream.classes}, {"mean_frame", mean_frame(stream)}, {"scores", scores}};
}

}  // namespace millrace::bench
