#include "engine/trainer/profiler.h"

#include <ATen/ATen.h>      // samples
#include <ATen/Parallel.h>  // intra-op threads

#include <algorithm>  // max
#include <atomic>     // neighbours' end
#include <chrono>     // timing
#include <cstring>    // messages
#include <future>     // a thread of its own
#include <thread>     // neighbours

#include "capture/backend.h"
#include "capture/retained_bytes.h"
#include "engine/pipeline/channels.h"
#include "engine/pipeline/feed.h"
#include "engine/pipeline/pinning.h"
#include "engine/trainer/repeats.h"
#include "engine/trainer/torch_device.h"
#include "stages/stage.h"
#include "stages/tensor_split.h"

namespace millrace::engine {
namespace {

using stages::Stage;
using stages::Tensors;

double now_ms() {
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

Tensors first_input(const stages::Network& network, const stages::ImageShape& sample,
                    c10::Device device) {
  at::Tensor x = at::rand({1, sample.channels, sample.height, sample.width});
  if (network.channels_last()) x = x.contiguous(at::MemoryFormat::ChannelsLast);
  return {x.to(device)};
}

/// Runs a whole-network step again and again on every usable core but the first.
class Neighbours {
 public:
  Neighbours(bool wanted, const std::shared_ptr<const stages::Network>& network,
             const stages::ImageShape& sample, const stages::OptimizerSpec& optimizer) {
    for (int core = 1; wanted && core < usable_cores(); ++core) {
      threads_.emplace_back([this, core, network, sample, optimizer] {
        pin_this_thread(core);
        at::set_num_threads(1);
        Stage stage(network, {0, network->size(), true, true}, optimizer, at::kCPU);
        const Tensors x = first_input(*network, sample, at::kCPU);
        while (!stop_.load(std::memory_order_relaxed)) {
          stages::Activations kept = stage.forward(x, x[0]);
          stage.backward(kept, {});
          stage.update({.count = 1}, 1.0);
        }
      });
    }
  }
  ~Neighbours() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  std::atomic<bool> stop_{false};
  std::vector<std::thread> threads_;
};

/// Times of one stage's step, by part.
struct Times {
  std::vector<double> forward, input_gradient, weight_gradient, update;

  /// Parts too short to tell from the clock's grain cost nothing that matters.
  bool known() const {
    constexpr double kShare = 0.05, kGrainMs = 0.002;
    for (const auto* part : {&forward, &input_gradient, &weight_gradient, &update})
      if (!settled(*part, kShare) && median(*part) > kGrainMs) return false;
    return true;
  }
};

/// Runs a stage of `network` on `inputs` and leaves what it gives in `outputs`.
class Bench {
 public:
  Bench(const std::shared_ptr<const stages::Network>& network, stages::StageRange range,
        const stages::OptimizerSpec& optimizer, bool split, c10::Device device)
      : stage_(network, range, optimizer, device, {.split = split}),
        split_(split),
        backend_(capture::make_eager_backend(device)) {
    stages::load_state(stage_.parameters(), stages::initial_state(*network, 0));
  }

  Times run(const Tensors& inputs, const at::Tensor& target, int repeats, int most) {
    Times times;
    for (int repeat = 0; repeat < repeats + 2 || (repeat < most + 2 && !times.known()); ++repeat) {
      const double forward = time([&] { kept_ = stage_.forward(inputs, target); });
      outputs_ = kept_.outputs;
      Tensors gradients;
      for (const at::Tensor& output : outputs_) gradients.push_back(at::full_like(output, 1e-3));
      const double input = time([&] {
        split_ ? stage_.backward_input(kept_, gradients) : stage_.backward(kept_, gradients);
      });
      const double weight = split_ ? time([&] { stage_.backward_weight(kept_); }) : 0;
      const double update = time([&] { stage_.update({.count = 1}, 1.0); });
      if (repeat < 2) continue;  // warm-up
      times.forward.push_back(forward);
      times.input_gradient.push_back(input);
      times.weight_gradient.push_back(weight);
      times.update.push_back(update);
    }
    return times;
  }

  plan::StepBytes bytes(const Tensors& inputs, const at::Tensor& target) {
    plan::StepBytes bytes;
    stages::Activations kept;
    bytes.stash = double(capture::retained_bytes([&] { kept = stage_.forward(inputs, target); }));
    for (const at::Tensor& output : kept.outputs) bytes.activation += double(output.nbytes());
    bytes.gradient = bytes.activation;
    bytes.weight = double(stage_.weight_bytes());
    bytes.state = double(stage_.optimizer_bytes());
    return bytes;
  }

  const Tensors& outputs() const { return outputs_; }

 private:
  template <class Work>
  double time(const Work& work) {
    const double start = now_ms();
    backend_->run(std::ref(work));  // returns when the device has done it
    return now_ms() - start;
  }

  Stage stage_;
  bool split_;
  std::unique_ptr<capture::Backend> backend_;
  stages::Activations kept_;
  Tensors outputs_;
};

void prepare_thread() {
  pin_this_thread(0);
  at::set_num_threads(1);
}

/// Runs `work` on a thread of its own, pinned to the first core: the caller, and every thread it
/// starts later, would stay pinned there.
template <class Work>
auto on_own_core(const Work& work) {
  return std::async(std::launch::async,
                    [&] {
                      prepare_thread();
                      return work();
                    })
      .get();
}

/// How many ranks can share a module with its neighbours. Of two that are split, the second adds up
/// what it gives, and the first as much again on the way back.
void note_ways(plan::Profile& profile, const std::shared_ptr<const stages::Network>& network) {
  constexpr int kMost = 16;
  for (int ways = 2; ways <= kMost; ways *= 2) {
    const stages::TensorSplit split(network, {}, ways);
    for (const auto& [first, second] : split.pairs()) {
      for (int index = first; index <= second; ++index)
        profile.modules[std::size_t(index)].tensor_ways = ways;
      plan::ModuleProfile& last = profile.modules[std::size_t(second)];
      last.tensor_bytes = last.bytes.activation;
    }
  }
}

plan::Profile profile_here(const std::shared_ptr<const stages::Network>& network,
                           const stages::ImageShape& sample, const stages::OptimizerSpec& optimizer,
                           const ProfilerOptions& options) {
  const Neighbours neighbours(options.neighbours, network, sample, optimizer);
  const c10::Device device = torch_device(options.device);
  plan::Profile profile{.device = options.device.name()};
  Tensors x = first_input(*network, sample, device);
  profile.input_bytes = double(x[0].nbytes());
  for (int index = 0; index < network->size(); ++index) {
    // A stage of this module alone, without the loss: the gradients come from outside.
    Bench bench(network, {index, index + 1, index == 0, false}, optimizer, /*split=*/true, device);
    const Times times = bench.run(x, {}, options.repeats, options.most_repeats);
    plan::ModuleProfile module{.name = network->module(index).describe(),
                               .forward = measured(times.forward),
                               .input_gradient = measured(times.input_gradient),
                               .weight_gradient = measured(times.weight_gradient),
                               .update = measured(times.update),
                               .bytes = bench.bytes(x, {})};
    if (index == 0) module.input_gradient = {};
    if (module.bytes.weight == 0) module.weight_gradient = module.update = {};
    profile.modules.push_back(std::move(module));
    x = bench.outputs();
  }
  note_ways(profile, network);
  return profile;
}

}  // namespace

plan::Profile measure_profile(const std::shared_ptr<const stages::Network>& network,
                              const stages::ImageShape& sample,
                              const stages::OptimizerSpec& optimizer,
                              const ProfilerOptions& options) {
  return on_own_core([&] { return profile_here(network, sample, optimizer, options); });
}

namespace {

void await(TokenQueue& queue, Token& token) {
  while (!queue.receive(token, kPatience)) {
  }
}

/// Whoever has the token reads the message that the other has written, and writes it anew.
void rewrite(std::vector<float>& message) {
  float sum = 0;
  for (float& value : message) sum += value, value = sum;
}

/// Milliseconds of each of so many trips of a message to the other core and back.
std::vector<double> trips_ms(std::vector<float>& message, int rounds) {
  TokenQueue there(4), back(4);
  const auto never = [] { return false; };
  std::thread other([&] {
    pin_this_thread(1);
    Token token;
    for (int round = 0; round < rounds; ++round) {
      await(there, token);
      rewrite(message);
      back.send({token.sample + 1}, never);
    }
  });
  std::vector<double> trips;
  Token token;
  for (int round = 0; round < rounds; ++round) {
    const double start = now_ms();
    there.send({round}, never);
    await(back, token);
    rewrite(message);
    if (round > 10) trips.push_back(now_ms() - start);
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
    // A round is two ways with the work at each end, which is no part of the way.
    for (int batch = 0; batch < kBatches && !(way.median > 2 * way.spread && way.spread > 0);
         ++batch) {
      for (const double ms : trips_ms(message, kRounds)) trips.push_back(ms);
      for (int round = 0; round < kRounds; ++round) {
        const double start = now_ms();
        rewrite(message);
        alone.push_back(now_ms() - start);
      }
      const plan::Measured trip = measured(trips), work = measured(alone);
      way = {trip.median / 2 - work.median, trip.spread / 2 + work.spread};
    }
    if (way.median <= way.spread) continue;  // noise
    result.points.emplace_back(double(bytes), way.median);
    result.spread.push_back(way.spread);
  }
  return result;
}

}  // namespace

plan::HandOff measure_hand_off() {
  return on_own_core(hand_off_here);
}

std::vector<plan::Measured> measure_thread_speedup(
    const std::shared_ptr<const stages::Network>& network, const stages::ImageShape& sample,
    const stages::OptimizerSpec& optimizer) {
  constexpr int kTurn = 5, kMostTurns = 20;
  constexpr double kKnown = 0.1;
  const std::size_t cores = std::size_t(usable_cores());
  std::vector<std::vector<double>> steps(cores);
  const auto known = [&] {
    return std::all_of(steps.begin(), steps.end(),
                       [&](const auto& step) { return settled(step, kKnown); });
  };
  // In turns, so that what else the machine does meets all counts of cores alike.
  for (int turn = 0; turn < kMostTurns && !(turn > 1 && known()); ++turn) {
    for (int threads = 1; threads <= usable_cores(); ++threads) {
      // A thread of its own, unpinned, so that its team may spread.
      std::thread([&] {
        at::set_num_threads(threads);
        Bench bench(network, {0, network->size(), true, true}, optimizer, false, at::kCPU);
        const Tensors x = first_input(*network, sample, at::kCPU);
        const Times times = bench.run(x, x[0], kTurn, kTurn);
        for (int i = 0; i < kTurn; ++i)
          steps[std::size_t(threads - 1)].push_back(times.forward[i] + times.input_gradient[i] +
                                                    times.update[i]);
      }).join();
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

}  // namespace millrace::engine
