#include "tools/bench/gpu/gpu_arm.h"

#include <nlohmann/json.hpp>

#include "engine/plan/balance.h"
#include "engine/schedule/launch_groups.h"

namespace millrace::bench {
namespace {

using Json = nlohmann::ordered_json;
using engine::Clock;

/// An arm has taken too long when it took this many times what its turns were to take: recording
/// and slow frames are the rest.
constexpr double kPatience = 4;

/// Multiplications that each module takes. Counted, not timed: a core's times, which the trainer
/// would take, say nothing of a GPU and take minutes at 1024 pixels.
std::vector<double> multiplications(const stages::Network& network) {
  std::vector<double> all;
  for (int module = 0; module < network.size(); ++module) {
    const stages::ImageShape& shape = network.shape(module);
    double each = double(shape.channels);  // something for an activation, too
    for (const stages::ParameterSpec& parameter : network.parameters(module, module + 1)) {
      double weights = 1;
      for (const std::int64_t length : parameter.shape) weights *= double(length);
      each += weights;
    }
    all.push_back(each * double(shape.height * shape.width));
  }
  return all;
}

/// Notes when the predictions came.
class Predictions final : public engine::Observer {
 public:
  /// Those of the first kWarmUp are not counted, nor those before number `from`.
  explicit Predictions(std::int64_t from) : left_(from) {}
  void predicted(engine::Sample&, float) override {
    last_ = Clock::now();
    if (first_ == Clock::time_point()) first_ = last_;
    const bool warm = --left_ < 0 && last_ - first_ >= kWarmUp;
    if (count_ > 0 || warm) ++count_;
    if (count_ == 1) begin_ = last_;
  }
  double a_second() const {
    return double(count_ - 1) / std::chrono::duration<double>(last_ - begin_).count();
  }

 private:
  std::int64_t left_, count_ = 0;
  Clock::time_point first_, begin_, last_;
};

}  // namespace

Json measured(const GpuBench& how, Json entry, int turns, const std::function<GpuArm()>& make) {
  if (how.progress) how.progress(entry.dump());
  const Clock::time_point begin = Clock::now();
  const std::chrono::duration<double> enough(kPatience * turns * how.seconds);
  try {
    const GpuArm arm = make();
    Json values = Json::object();
    for (int turn = 0; turn == 0 || (turn < turns && Clock::now() - begin < enough); ++turn) {
      for (const Way& way : arm.ways) values[way.name].push_back(way.measure(how.seconds));
      for (const Ratio& ratio : arm.ratios) {
        values[ratio.name].push_back(values[ratio.over].back().get<double>() /
                                     values[ratio.under].back().get<double>());
      }
    }
    for (const auto& [name, of_turns] : values.items())
      entry[name] = median(of_turns.get<std::vector<double>>());
    entry["turns"] = values;
  } catch (const std::exception& error) {
    const std::string text = error.what();  // LibTorch adds where in its sources it is
    entry["error"] = text.substr(0, text.find('\n'));
  }
  return entry;
}

engine::TrainerOptions gpu_options(const GpuBench& how, const std::string& network,
                                   std::int64_t size, int stages, engine::Capture capture) {
  engine::TrainerOptions options{.sample = {3, size, size}, .capture = capture};
  options.stages = stages;
  options.network = stages::build_network(bench_network(network), options.sample);
  options.module_ms = multiplications(*options.network);  // in proportion is enough
  options.cut = engine::balanced_cut(options.module_ms, stages);
  options.devices.assign(std::size_t(stages), how.device);
  options.weights = stages::initial_state(*options.network, 0);
  options.make_backend = how.make_backend;
  return options;
}

double frames_a_second(BenchArm& arm, double seconds) {
  // Before, stages have no gradients yet; and as many samples as have slots may be told of
  // together when the stream has ended.
  const std::int64_t filled = 2 * arm.stages();
  const std::int64_t slots = engine::for_recording(engine::schedule_of(arm.options())).slots();
  Predictions predictions(filled);
  const double warm_up = std::chrono::duration<double>(kWarmUp).count();
  arm.turn(warm_up + seconds, filled + slots + 6, &predictions);
  return predictions.a_second();
}

}  // namespace millrace::bench
