#include "engine/trainer/profiler.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <thread>

#include "capture/backend.h"
#include "capture/retained_bytes.h"
#include "engine/monitor/clock.h"
#include "engine/monitor/median.h"
#include "engine/pipeline/channels.h"
#include "engine/pipeline/pinning.h"
#include "engine/trainer/sum_group.h"
#include "stages/stage.h"
#include "stages/tensor_split.h"

namespace millrace::engine {
namespace {

using stages::Stage, stages::Tensors;

Tensors first_input(const TrainerOptions& options, c10::Device device) {
  at::Tensor x = at::rand(options.sample.sizes());
  if (options.network->channels_last()) x = x.contiguous(at::MemoryFormat::ChannelsLast);
  return {x.to(device)};
}

enum class Part { forward, backward, backward_weight, update };  ///< backward: or its first part
constexpr std::size_t kParts = 4;

/// A stage on one input, whose parts are run repeatedly as in its step; recorded if possible.
class Rig {
 public:
  /// `split`: a backward in two parts.
  Rig(const TrainerOptions& options, stages::StageRange range, bool split, c10::Device device,
      std::unique_ptr<capture::Backend> backend, const Tensors& inputs, const at::Tensor& target)
      : backend_(std::move(backend)),
        stage_(made(options, range, split, device)),
        inputs_(inputs),
        target_(target),
        rate_(at::ones({}, at::TensorOptions(device).dtype(at::kDouble))),
        skipped_(at::zeros({}, device)) {
    stash_ = prepare(Part::forward, [this] { kept_ = stage_.forward(inputs_, target_); });
    outputs_ = kept_.outputs;
    backend_->run([&] {
      for (const at::Tensor& output : outputs_) gradients_.push_back(at::full_like(output, 1e-3));
    });
    const stages::Adding adding{.retain = backend_->records()};
    const bool learns = stage_.weight_bytes() > 0;
    if (split) {
      const auto first = [=, this] {
        passed_on_ = stage_.backward_input(kept_, gradients_, adding);
      };
      prepare(Part::backward, first, !range.first);
      prepare(
          Part::backward_weight, [=, this] { stage_.backward_weight(kept_, adding); }, learns);
    } else {
      prepare(Part::backward,
              [=, this] { passed_on_ = stage_.backward(kept_, gradients_, adding); });
    }
    prepare(
        Part::update, [this] { stage_.update({.count = 1}, rate_, skipped_); }, learns);
  }
  /// The whole network, on a core.
  Rig(const TrainerOptions& options, std::unique_ptr<capture::Backend> backend)
      : Rig(options, {0, options.network->size(), true, true}, /*split=*/false, at::kCPU,
            std::move(backend), first_input(options, at::kCPU),
            at::rand(options.network->output().sizes())) {}
  ~Rig() { backend_->synchronize(); }

  /// Whether the step has `part`.
  bool has(Part part) const { return bool(bodies_[std::size_t(part)]); }
  /// Milliseconds of one run of `part`. A GPU does many, to hide the clock's grain and the launch.
  double time(Part part) {
    const double start = now_ms();
    capture::Graph* const graph = graphs_[std::size_t(part)].get();
    if (graph) {
      graph->launch();
    } else if (!backend_->records()) {
      backend_->run(std::ref(bodies_[std::size_t(part)]));
    }
    if (!graph || !backend_->defers()) return now_ms() - start;  // the device has finished
    backend_->synchronize();
    return double(graph->duration_ns()) / 1e6 / kInARow;
  }

  plan::StepBytes bytes() {
    plan::StepBytes bytes;
    bytes.stash = stash_;
    for (const at::Tensor& output : outputs_) bytes.activation += double(output.nbytes());
    bytes.gradient = bytes.activation;
    bytes.weight = double(stage_.weight_bytes());
    bytes.state = double(stage_.optimizer_bytes());
    return bytes;
  }

  /// Copies, which may outlive this.
  Tensors outputs() const {
    Tensors copies;
    for (const at::Tensor& output : outputs_) copies.push_back(output.clone());
    return copies;
  }

 private:
  static constexpr int kInARow = 20;

  Stage made(const TrainerOptions& options, stages::StageRange range, bool split,
             c10::Device device) const {
    const bool channels_last = backend_->records() && device.is_cpu();  // its kernels prefer it
    Stage stage(options.network, range, options.optimizer, device,
                {.split = split, .channels_last = channels_last});
    stages::load_state(stage.parameters(), stages::initial_state(*options.network, 0));
    return stage;
  }

  /// Runs `part` for the first time and records it, unless it has nothing to do (`works` is false).
  /// Returns the bytes that it retains.
  double prepare(Part part, const std::function<void()>& body, bool works = true) {
    bodies_[std::size_t(part)] = body;
    std::int64_t bytes = 0;
    // On the stream that it will run on: autograd remembers it for each leaf.
    backend_->run([&] { bytes = capture::retained_bytes(body); });
    backend_->synchronize();
    if (!backend_->records() || !works) return double(bytes);
    recordings_.push_back(backend_->record(0, body));
    graphs_[std::size_t(part)] = backend_->assemble(std::vector<capture::GraphNode>(
        backend_->defers() ? kInARow : 1, {.recording = recordings_.back().get()}));
    return double(bytes);
  }

  const std::unique_ptr<capture::Backend> backend_;
  Stage stage_;
  const Tensors inputs_;
  const at::Tensor target_, rate_;
  at::Tensor skipped_;
  stages::Activations kept_;
  Tensors outputs_, gradients_, passed_on_;
  double stash_ = 0;
  std::array<std::function<void()>, kParts> bodies_;  ///< [Part]
  std::vector<std::unique_ptr<capture::Recording>> recordings_;
  std::array<std::unique_ptr<capture::Graph>, kParts> graphs_;  ///< [Part], if recording
};

/// While the result lives, a whole-network step runs repeatedly on every usable core but the first.
std::vector<std::jthread> neighbours(const TrainerOptions& options, bool recorded) {
  std::vector<std::jthread> threads;
  for (int core = 1; core < usable_cores(); ++core) {
    threads.emplace_back([=](const std::stop_token& over) {
      pin_this_thread(core);
      at::set_num_threads(1);
      Rig rig(options, make_backend(at::kCPU, recorded, options.numerics));
      while (!over.stop_requested()) {
        for (const Part part : {Part::forward, Part::backward, Part::update}) rig.time(part);
      }
    });
  }
  return threads;
}

/// [Part]: repeats in milliseconds; empty if the step lacks it.
using Times = std::array<std::vector<double>, kParts>;

/// Counts parts that are too short for the clock, and so negligible, as known.
bool are_known(const Times& times) {
  constexpr double kShare = 0.05, kGrainMs = 0.002;
  return std::ranges::all_of(times, [](const std::vector<double>& part) {
    return settled(part, kShare) || median(part) <= kGrainMs;
  });
}

/// Times `rig`'s parts, `repeats` to `most` times.
Times time_parts(Rig& rig, int repeats, int most) {
  Times times;
  for (int repeat = 0; repeat < repeats + 2 || (repeat < most + 2 && !are_known(times)); ++repeat) {
    for (std::size_t part = 0; part < kParts; ++part) {
      if (!rig.has(Part(part))) continue;
      const double ms = rig.time(Part(part));
      if (repeat >= 2) times[part].push_back(ms);  // warmed up
    }
  }
  return times;
}

/// Times module `index` without the loss. `x`: its input; becomes its output.
plan::ModuleProfile profile_module(const TrainerOptions& options, int index, Tensors& x,
                                   const ProfilerOptions& how) {
  const c10::Device device = torch_device(how.device);
  Rig rig(options, {index, index + 1, index == 0, false}, /*split=*/true, device,
          make_backend(device, how.recorded, options.numerics), x, {});
  const Times times = time_parts(rig, how.repeats, how.most_repeats);
  plan::ModuleProfile module{.name = options.network->module(index).describe(),
                             .bytes = rig.bytes()};
  for (std::size_t part = 0; part < kParts; ++part)
    module.*plan::kTimes[part].second = measured(times[part]);
  if (index == 0) module.input_gradient = {};
  if (module.bytes.weight == 0) module.weight_gradient = module.update = {};
  x = rig.outputs();
  return module;
}

/// Does not sum: waiting for ranks is no part of a module's time.
class Alone final : public stages::Reducer {
 public:
  void add_up(std::span<float>, int) override {}
};

/// Costs of modules that `ways` ranks share. In a pair of split modules, the second sums its output
/// and the first its input's gradient. `given`: each module's input.
void profile_parts(plan::Profile& profile, const TrainerOptions& options, int ways,
                   const std::vector<Tensors>& given, const ProfilerOptions& how) {
  const stages::TensorSplit split(options.network, {}, ways);
  TrainerOptions part = options;
  part.network = split.part(std::make_shared<Alone>());
  for (const auto& [first, second] : split.pairs()) {
    plan::ModuleProfile& taker = profile.modules[std::size_t(first)];
    plan::ModuleProfile& giver = profile.modules[std::size_t(second)];
    giver.tensor_bytes = giver.bytes.activation;
    if (first > 0)
      taker.tensor_gradient_bytes = profile.modules[std::size_t(first) - 1].bytes.activation;
    Tensors x = given[std::size_t(first)];
    for (int index = first; index <= second; ++index) {
      plan::ModuleProfile& module = profile.modules[std::size_t(index)];
      module.tensor_ways = ways;
      if (ways > std::max(2, usable_cores())) continue;  // costs like fewer parts
      module.parts[ways] = profile_module(part, index, x, how).ms();
    }
  }
}

plan::Profile profile_here(const TrainerOptions& options, const ProfilerOptions& how) {
  constexpr int kMostWays = 16;
  std::vector<std::jthread> others;
  if (how.neighbours) others = neighbours(options, how.recorded);
  plan::Profile profile{.device = how.device.name()};
  Tensors x = first_input(options, torch_device(how.device));
  profile.input_bytes = double(x[0].nbytes());
  std::vector<Tensors> given;
  for (int index = 0; index < options.network->size(); ++index) {
    given.push_back(x);
    profile.modules.push_back(profile_module(options, index, x, how));
  }
  for (int ways = 2; how.parts && ways <= kMostWays; ways *= 2)
    profile_parts(profile, options, ways, given, how);
  return profile;
}

/// Milliseconds of some steps of the whole network on another thread and its helpers.
std::vector<double> steps_ms(const TrainerOptions& options, int threads, bool programs, int count) {
  std::vector<double> steps;
  std::thread([&] {
    // a team pins its threads; LibTorch's spread by themselves
    if (programs) pin_this_thread(0);
    at::set_num_threads(programs ? 1 : threads);
    Rig rig(options, make_backend(at::kCPU, programs, options.numerics, threads, pin_this_thread));
    const Times times = time_parts(rig, count, count);
    for (int i = 0; i < count; ++i) {
      steps.push_back(0);
      for (const std::vector<double>& part : times) steps.back() += part.empty() ? 0 : part[i];
    }
  }).join();
  return steps;
}

void put(TokenQueue& queue, const Token& token) {
  while (!queue.offer(token, kPatience)) {
  }
}

void await(TokenQueue& queue) {
  for (Token token; !queue.receive(token, kPatience);) {
  }
}

/// Reads the other core's message and writes to all of it.
void rewrite(std::vector<float>& message) {
  float sum = 0;
  for (float& value : message) sum += value, value = sum;
}

/// Milliseconds of each round trip of a message to the other core.
std::vector<double> trips_ms(std::vector<float>& message, int rounds) {
  TokenQueue there(4), back(4);
  std::thread other([&] {
    pin_this_thread(1);
    for (int round = 0; round < rounds; ++round) {
      await(there);
      rewrite(message);
      put(back, {round});
    }
  });
  std::vector<double> trips;
  for (int round = 0; round < rounds; ++round) {
    const double ms = ms_of([&] {
      put(there, {round});
      await(back);
      rewrite(message);
    });
    if (round > 10) trips.push_back(ms);
  }
  other.join();
  return trips;
}

plan::HandOff hand_off_here() {
  plan::HandOff result{.between = "cpu-cpu", .points = {}, .spread = {}};
  if (usable_cores() < 2) return result;
  constexpr int kRounds = 200, kBatches = 10;
  for (const std::size_t bytes : {1u << 10, 1u << 14, 1u << 17, 1u << 20, 1u << 22}) {
    std::vector<float> message(bytes / sizeof(float), 1.0f);
    std::vector<double> trips, alone;
    plan::Measured way;
    // Half of a round trip, without the work at its ends.
    for (int batch = 0; batch < kBatches && !(way.median > 2 * way.spread && way.spread > 0);
         ++batch) {
      for (const double ms : trips_ms(message, kRounds)) trips.push_back(ms);
      for (int round = 0; round < kRounds; ++round)
        alone.push_back(ms_of([&] { rewrite(message); }));
      const plan::Measured trip = measured(trips), work = measured(alone);
      way = {trip.median / 2 - work.median, trip.spread / 2 + work.spread};
    }
    if (way.median <= way.spread) continue;  // noise
    result.points.emplace_back(double(bytes), way.median);
    result.spread.push_back(way.spread);
  }
  return result;
}

/// Milliseconds of a sum. Every sum is a barrier, so all ranks begin the next together. Takes the
/// fastest of several batches: waiting for a preempted rank would add milliseconds.
plan::Measured sum_ms(SumGroup& group, std::vector<float>& numbers, int place) {
  constexpr int kBatches = 20, kSums = 8;
  plan::Measured quickest{.median = std::numeric_limits<double>::infinity()};
  for (int batch = 0; batch < kBatches; ++batch) {
    std::vector<double> all;
    for (int sum = 0; sum < kSums; ++sum)
      all.push_back(ms_of([&] { group.add_up(numbers, place); }));
    const plan::Measured ms = measured(all);
    if (ms.median < quickest.median) quickest = ms;
  }
  return quickest;
}

}  // namespace

plan::Profile measure_profile(const TrainerOptions& options, const ProfilerOptions& how) {
  return on_core(0, [&] {
    at::set_num_threads(1);
    return profile_here(options, how);
  });
}

std::vector<plan::Measured> measure_thread_speedup(const TrainerOptions& options, bool programs) {
  constexpr int kTurn = 5, kMostTurns = 20;
  constexpr double kKnown = 0.1;
  const auto cores = std::size_t(usable_cores());
  std::vector<std::vector<double>> steps(cores);
  const auto known = [&] {
    return std::all_of(steps.begin(), steps.end(),
                       [&](const auto& step) { return settled(step, kKnown); });
  };
  // In turns, so that other load on the machine affects all counts of cores equally.
  for (int turn = 0; turn < kMostTurns && !(turn > 1 && known()); ++turn) {
    for (int threads = 1; threads <= usable_cores(); ++threads) {
      std::vector<double>& all = steps[std::size_t(threads - 1)];
      for (const double ms : steps_ms(options, threads, programs, kTurn)) all.push_back(ms);
    }
  }
  std::vector<plan::Measured> speeds;
  const double one = median(steps[0]);
  for (const std::vector<double>& step : steps) {
    const plan::Measured ms = measured(step);
    speeds.push_back({one / ms.median, one / ms.median * ms.spread / ms.median});
  }
  return speeds;
}

plan::HandOff measure_hand_off() {
  return on_core(0, hand_off_here);
}

plan::HandOff measure_sums(Exchange& exchange) {
  plan::HandOff result{.between = plan::kSums, .points = {}, .spread = {}};
  on_core(exchange.rank(), [&] {
    SumGroup group(exchange);
    int place = 0;
    for (const std::size_t bytes : {4u, 1u << 12, 1u << 15, 1u << 17, 1u << 19, 1u << 21}) {
      std::vector<float> numbers(bytes / sizeof(float), 0.0f);
      const plan::Measured ms = sum_ms(group, numbers, place++);
      result.points.emplace_back(double(bytes) * (exchange.ranks() - 1), ms.median);
      result.spread.push_back(ms.spread);
    }
  });
  return result;
}

}  // namespace millrace::engine
