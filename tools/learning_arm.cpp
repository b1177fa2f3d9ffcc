#include "tools/learning_arm.h"

#include <ATen/ATen.h>          // tensors of frames
#include <c10/core/GradMode.h>  // held-out frames leave no graph

#include <numeric>    // means
#include <stdexcept>  // a stream that is too short

#include "engine/balance.h"
#include "engine/oracle.h"
#include "io/fitter.h"
#include "io/planar.h"
#include "io/source.h"

namespace millrace::tools {
namespace {

constexpr std::int64_t kHeldOutSpan = 200, kHeldOutEvery = 5;
constexpr std::int64_t kLast = 100, kReturn = 20;

double mean(const std::vector<float>& losses, std::int64_t begin, std::int64_t end) {
  begin = std::max<std::int64_t>(begin, 0);
  end = std::min<std::int64_t>(end, std::int64_t(losses.size()));
  if (begin >= end) return 0;
  return std::accumulate(losses.begin() + begin, losses.begin() + end, 0.0) / double(end - begin);
}

/// The PARTIME experiments' basic network, as bench framerate has it.
std::shared_ptr<const stages::Network> network_of(const at::Tensor& frame) {
  return stages::build_network({}, {frame.size(1), frame.size(2), frame.size(3)});
}

engine::TrainerOptions options_of(const LearningArm& arm, double lr, std::uint64_t seed) {
  engine::TrainerOptions options;
  const at::Tensor& frame = arm.stream->frames.front();
  options.network = network_of(frame);
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

double held_out_loss(const std::vector<stages::Stage>& stages, const LearningStream& stream) {
  const c10::NoGradGuard no_grad;
  double sum = 0;
  for (const at::Tensor& frame : stream.held_out) {
    stages::Tensors x = {frame};
    for (const stages::Stage& stage : stages) {
      const stages::Activations kept = stage.forward(x, frame);
      if (stage.range().last) sum += kept.loss.item<float>();
      x = kept.outputs;
    }
  }
  return stream.held_out.empty() ? 0 : sum / double(stream.held_out.size());
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
  if (every > 1) text += ", every " + std::to_string(every) + "th frame";
  return text;
}

LearningStream read_stream(const std::string& name, const std::string& uri, std::int64_t turn,
                           std::int64_t learn, int width, int height) {
  LearningStream stream{.name = name, .uri = uri, .turn = turn};
  const auto source = io::open_source({.uri = uri, .width = width, .height = height});
  io::Fitter fitter(width, height);
  io::Frame frame;
  for (std::int64_t n = 0; n < learn + kHeldOutSpan; ++n) {
    if (source->read(frame, std::chrono::seconds(10)) != io::ReadStatus::frame) break;
    if (n >= learn && n % kHeldOutEvery != 0) continue;
    at::Tensor tensor = at::empty({1, 3, height, width});
    io::to_planar(fitter.fit(frame), tensor.mutable_data_ptr<float>());
    (n < learn ? stream.frames : stream.held_out).push_back(std::move(tensor));
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
    const at::Tensor& frame = frames[std::size_t(n * arm.every)];
    return std::pair(frame, frame);
  };
  LearningScore score;
  score.losses =
      engine::run_oracle(schedule, stages, sample, std::int64_t(frames.size()) / arm.every);
  const auto count = std::int64_t(score.losses.size());
  score.mean = mean(score.losses, 0, count);
  score.last = mean(score.losses, count - kLast / arm.every, count);
  score.held_out = held_out_loss(stages, *arm.stream);
  score.forgetting = forgetting(score.losses, arm, kLearningScenes);
  return score;
}

}  // namespace millrace::tools
