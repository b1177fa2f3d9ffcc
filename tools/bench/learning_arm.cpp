#include "tools/bench/learning_arm.h"

#include <ATen/ATen.h>          // tensors of frames
#include <c10/core/GradMode.h>  // held-out frames leave no graph

#include <cmath>      // isfinite
#include <numeric>    // means
#include <stdexcept>  // a stream that is too short

#include "engine/format.h"
#include "engine/plan/balance.h"
#include "engine/trainer/oracle.h"
#include "io/queue/planar.h"
#include "io/queue/resizer.h"
#include "io/source/source.h"

namespace millrace::bench {
namespace {

constexpr std::int64_t kHeldOutSpan = 200, kHeldOutEvery = 5;
constexpr std::int64_t kLast = 100, kReturn = 20;

double mean(const std::vector<float>& losses, std::int64_t begin, std::int64_t end) {
  begin = std::max<std::int64_t>(begin, 0);
  end = std::min<std::int64_t>(end, std::int64_t(losses.size()));
  if (begin >= end) return 0;
  return std::accumulate(losses.begin() + begin, losses.begin() + end, 0.0) / double(end - begin);
}

stages::LayerSpec layer(const std::string& type, std::optional<std::int64_t> out = {},
                        std::optional<std::int64_t> kernel = {}) {
  return {.type = type, .out = out, .kernel = kernel};
}

/// The PARTIME experiments' basic network, as bench framerate has it, with the arm's norm; for classes
/// eight convolutions that normalise their maps, since without that so deep a network hardly moves
/// in 600 frames, a mean over twelfths of the picture and a linear layer.
std::shared_ptr<const stages::Network> network_of(const LearningArm& arm) {
  const LearningStream& stream = *arm.stream;
  const at::Tensor& frame = stream.frames.front();
  const stages::ImageShape shape{frame.size(1), frame.size(2), frame.size(3)};
  stages::ModelSpec model{.norm = arm.norm};
  if (arm.slope > 0) model.activation = "leaky-relu", model.slope = arm.slope;
  if (stream.classes == 0) return stages::build_network(model, shape);
  model.preset = "layers";
  for (int i = 0; i < 8; ++i) {
    stages::LayerSpec norm = layer("groupnorm");
    norm.groups = 4;
    model.layer.insert(model.layer.end(), {layer("conv", 16, 3), norm, layer("relu")});
    if (i == 1) model.layer.push_back(layer("maxpool", {}, 2));
  }
  model.layer.insert(model.layer.end(), {layer("avgpool", {}, 6), layer("flatten"),
                                         layer("linear", stream.classes), layer("sigmoid")});
  return stages::build_network(model, shape, stages::Gives::vector);
}

engine::TrainerOptions options_of(const LearningArm& arm, double lr, std::uint64_t seed) {
  engine::TrainerOptions options;
  options.capture = engine::Capture::eager;  // as the oracle computes
  const at::Tensor& frame = arm.stream->frames.front();
  options.network = network_of(arm);
  options.target_is_input = arm.stream->classes == 0;
  options.sample = {frame.size(1), frame.size(2), frame.size(3)};
  options.schedule = arm.schedule;
  options.stages = arm.stages;
  options.microbatches = std::max(4, arm.stages);
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
  options.cut = engine::balanced_cut(costs, arm.stages);
  options.optimizer = arm.optimizer;
  options.optimizer.lr = lr;
  options.correction.kind = arm.correction;
  options.weights = stages::initial_state(*options.network, seed);
  return options;
}

float counted(float loss) {
  return std::isfinite(loss) ? loss : 1.0f;
}

void look_at_held_out(const std::vector<stages::Stage>& stages, const LearningStream& stream,
                      LearningScore& score) {
  const c10::NoGradGuard no_grad;
  const double share = 1.0 / double(std::max<std::size_t>(stream.held_out.size(), 1));
  for (std::size_t i = 0; i < stream.held_out.size(); ++i) {
    const at::Tensor& target = stream.held_out_targets[i];
    stages::Tensors x = {stream.held_out[i]};
    for (const stages::Stage& stage : stages) {
      const stages::Activations kept = stage.forward(x, target);
      if (stage.range().last) score.held_out += share * counted(kept.loss.item<float>());
      x = kept.outputs;
    }
    if (stream.classes > 0 && at::equal(x[0].argmax(), target.argmax()))
      score.held_out_hits += share;
  }
}

/// The first scene's return, in the frames that were learned from.
double forgetting(const std::vector<float>& losses, const LearningArm& arm, int scenes) {
  if (arm.stream->turn == 0) return 0;
  const std::int64_t left = arm.stream->turn / arm.every, back = scenes * left;
  const std::int64_t few = kReturn / arm.every;
  if (back + few > std::int64_t(losses.size()) || few == 0) return 0;
  const double before = mean(losses, left - few, left);
  return before > 0 ? mean(losses, back, back + few) / before : 0;
}

}  // namespace

std::string LearningArm::name() const {
  std::string text = stream->name + " " + schedule + " x" + std::to_string(stages) + " " +
                     optimizer_name + " " + correction;
  if (norm != "none") text += ", norm " + network_text(norm, slope);
  if (every > 1) text += ", " + frames_text(every) + " frame";
  return text;
}

std::string network_text(const std::string& norm, double slope) {
  return slope == 0 ? norm : norm + engine::format(", leaky ReLU %g", slope);
}

std::string frames_text(int every) {
  if (every == 1) return "all";
  const char* ends[] = {"th", "st", "nd", "rd"};
  const bool teens = every / 10 % 10 == 1;
  return "every " + std::to_string(every) + (teens || every % 10 > 3 ? "th" : ends[every % 10]);
}

LearningStream read_stream(const std::string& name, const std::string& uri, std::int64_t turn,
                           std::int64_t learn, int width, int height, bool labels) {
  LearningStream stream{.name = name, .uri = uri, .turn = turn};
  const auto source = io::open_source({.uri = uri, .width = width, .height = height});
  io::Resizer resizer(width, height);
  io::Frame frame;
  for (std::int64_t n = 0; n < learn + kHeldOutSpan; ++n) {
    if (source->read(frame, std::chrono::seconds(10)) != io::ReadStatus::frame) break;
    if (n >= learn && n % kHeldOutEvery != 0) continue;
    at::Tensor tensor = at::empty({1, 3, height, width});
    io::to_planar(resizer.fit(frame), tensor.mutable_data_ptr<float>());
    at::Tensor target = tensor;
    if (labels) {
      stream.classes = source->info().classes;
      target = at::zeros({1, stream.classes, 1, 1});
      target[0][frame.label] = 1;
    }
    (n < learn ? stream.frames : stream.held_out).push_back(std::move(tensor));
    (n < learn ? stream.targets : stream.held_out_targets).push_back(std::move(target));
  }
  if (std::int64_t(stream.frames.size()) < learn)
    throw std::runtime_error(uri + ": fewer than " + std::to_string(learn) + " frames");
  return stream;
}

LearningScore run_arm(const LearningArm& arm, double lr, std::uint64_t seed) {
  const engine::TrainerOptions options = options_of(arm, lr, seed);
  const engine::Schedule schedule = engine::schedule_of(options);
  std::vector<stages::Stage> stages = engine::build_stages(options, schedule);
  const std::vector<at::Tensor>& frames = arm.stream->frames;
  const auto sample = [&](std::int64_t n) {
    const auto at = std::size_t(n * arm.every);
    return std::pair(frames[at], arm.stream->targets[at]);
  };
  LearningScore score;
  engine::LossGuard guard(2 * schedule.slots());
  score.losses = engine::run_oracle(schedule, stages, sample,
                                    std::int64_t(frames.size()) / arm.every, {}, &guard);
  score.roll_backs = guard.roll_backs();
  for (float& loss : score.losses) {
    score.no_numbers += !std::isfinite(loss);
    loss = counted(loss);
  }
  const auto count = std::int64_t(score.losses.size());
  score.mean = mean(score.losses, 0, count);
  score.last = mean(score.losses, count - kLast / arm.every, count);
  look_at_held_out(stages, *arm.stream, score);
  score.forgetting = forgetting(score.losses, arm, kLearningScenes);
  return score;
}

}  // namespace millrace::bench
