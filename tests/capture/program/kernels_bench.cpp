// GFLOP/s of every operator of a network's training step, and of the step, beside the peak of the
// core's registers, in alternation. No test: figures for people.
//   kernels_bench [AVX2] [LAYERSxFEATURES KERNEL HEIGHT WIDTH]...
#include <hwy/highway.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

#include "tests/capture/program/kernels_reference.h"

namespace millrace::kernels {
namespace {

using Clock = std::chrono::steady_clock;

struct Network {
  int layers, features, kernel, height, width;
};

/// One call of the step with its best time.
struct Call {
  std::string name;
  double flops = 0;
  std::function<void()> run;
  double best = 1e9;
};

/// The step of (layers - 1) x {convolution, ReLU}, convolution, sigmoid, mse, on fixed memory.
class Step {
 public:
  explicit Step(const Network& n) : n_(n), random_(1) {
    const int halo = n.kernel / 2;
    for (int i = 0; i <= n.layers; ++i) {
      const int channels = i == 0 || i == n.layers ? 3 : n.features;
      values_.emplace_back(Layout{n.height, n.width, channels, halo}).fill(random_);
      gradients_.emplace_back(Layout{n.height, n.width, channels, halo}).fill(random_);
    }
    for (int i = 0; i < n.layers; ++i) add_layer(i);
    std::size_t parameters = 0;
    for (const auto& c : forward_) parameters += weights_of(c) + c.output.channels;
    for (int i = 0; i < 2; ++i) flat_.emplace_back(parameters).fill(random_);
    for (int i = 0; i < 2; ++i) flat_.emplace_back(parameters, 0.0f);
    float* weights = flat_.front().data();
    float* gradient = (++flat_.begin())->data();
    for (int i = 0; i < n.layers; ++i) {
      weights_.push_back(weights);
      weight_gradients_.push_back(gradient);
      weights += weights_of(forward_[i]) + forward_[i].output.channels;
      gradient += weights_of(forward_[i]) + forward_[i].output.channels;
    }
    for (std::size_t i = 0; i < parameters; ++i) flat_.front().data()[i] *= 0.05f;
    schedule();
  }

  std::vector<Call> calls;

 private:
  static std::size_t weights_of(const Convolution& c) {
    return std::size_t(c.input.channels) * c.output.channels * c.kernel * c.kernel;
  }
  TestImage& value(int i) { return *std::next(values_.begin(), i); }
  TestImage& gradient(int i) { return *std::next(gradients_.begin(), i); }

  void add_layer(int i) {
    Convolution c;
    c.kernel = n_.kernel;
    c.input = value(i).layout();
    c.output = value(i + 1).layout();
    c.activation = i + 1 < n_.layers ? Activation::kRelu : Activation::kSigmoid;
    forward_.push_back(c);
  }

  void schedule() {
    for (int i = 0; i < n_.layers; ++i) add_convolution(i, Pass::kForward);
    TestImage &made = value(n_.layers), &g = gradient(n_.layers), &target = gradient(0);
    calls.push_back({"loss", 0, [&] {
                       mse(made.first(), made.layout(), target.first(), target.layout(), g.first(),
                           g.layout(), true);
                     }});
    for (int i = n_.layers - 1; i >= 0; --i) {
      if (i > 0) add_convolution(i, Pass::kDataGradient);
      add_convolution(i, Pass::kWeightGradient);
    }
    UpdateOperands o;
    auto buffer = flat_.begin();
    o.from = o.to = buffer->data();
    o.gradient = (++buffer)->data();
    for (float*& state : o.state.buffers) state = (++buffer)->data();
    o.state.steps = &steps_;
    o.count = flat_.front().size();
    calls.push_back({"update", 0, [o] {
                       if (!is_finite(o, {})) return;
                       const stages::UpdateNumbers adam = {.optimizer = kAdam,
                                                           .lr = 1e-9,
                                                           .beta1 = 0.9,
                                                           .beta2 = 0.999,
                                                           .eps = 1e-8};
                       update(adam, o, 1, {});
                       count_step(adam, o);
                     }});
  }

  void add_convolution(int i, Pass pass) {
    Convolution c = forward_[i];
    c.pass = pass;
    c.masked = pass == Pass::kDataGradient;
    c.mask_halo = c.input.halo;
    const Kernel& kernel = *kernels_.emplace_back(make_kernel(c));
    TestFloats& packed = buffers_.emplace_back(kernel.packed_floats());
    TestFloats& scratch = buffers_.emplace_back(kernel.scratch_floats());
    Operands o;
    o.x = o.mask = value(i).first();
    o.y = value(i + 1).first();
    o.dy = gradient(i + 1).first();
    o.dx = gradient(i).first();
    o.packed = kernel.packed_floats() > 0 ? packed.data() : weights_[i];
    o.bias = weights_[i] + weights_of(c);
    o.weight_gradient = weight_gradients_[i];
    o.bias_gradient = weight_gradients_[i] + weights_of(c);
    o.scratch = scratch.data();
    const std::string what = pass == Pass::kForward        ? "forward"
                             : pass == Pass::kDataGradient ? "data"
                                                           : "weight";
    const std::string shape = std::to_string(c.input.channels) + "->" +
                              std::to_string(c.output.channels) + " " + kernel.name();
    if (kernel.packed_floats()) {
      calls.push_back({"pack " + what + " " + shape, 0,
                       [&kernel, w = weights_[i], p = packed.data()] { kernel.pack(w, p); }});
    }
    calls.push_back({what + " " + shape, flops(c), [&kernel, o] { kernel.run(o); }});
  }

  const Network n_;
  std::mt19937 random_;
  std::list<TestImage> values_, gradients_;
  std::vector<Convolution> forward_;
  std::list<TestFloats> flat_, buffers_;
  std::vector<const float*> weights_;
  std::vector<float*> weight_gradients_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
  float steps_ = 0;
};

double seconds(const std::function<void()>& run) {
  const auto begin = Clock::now();
  run();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void measure(const Network& n) {
  Step step(n);
  double peak = 0, whole = 1e9, work = 0, spent = 0;
  for (const Call& call : step.calls) work += call.flops;
  const auto run_all = [&] {
    for (Call& call : step.calls) call.run();
  };
  std::vector<double> paired;
  for (int i = 0; i < 400 && spent < 6; ++i) {
    const double before = fma_peak(1), took = seconds(run_all), after = fma_peak(1);
    peak = std::max({peak, before, after});
    paired.push_back(took / (work / ((before + after) / 2)));
    whole = std::min(whole, took);
    spent += took;
  }
  for (int i = 0; i < 40; ++i) {
    for (Call& call : step.calls) call.best = std::min(call.best, seconds(call.run));
    peak = std::max(peak, fma_peak(1));
  }
  std::printf("%dx%d k%d, %dx%d px, %s, peak %.0f GFLOP/s\n", n.layers, n.features, n.kernel,
              n.height, n.width, instruction_set().c_str(), peak * 1e-9);
  struct Sum {
    double time = 0, flops = 0;
    int count = 0;
  };
  std::map<std::string, Sum> sums;
  double best_sum = 0;
  for (const Call& call : step.calls) {
    Sum& sum = sums[call.name];
    sum.time += call.best;
    sum.flops += call.flops;
    ++sum.count;
    best_sum += call.best;
  }
  for (const auto& [name, sum] : sums) {
    std::printf("  %3d x %-28s %9.1f us", sum.count, name.c_str(), sum.time / sum.count * 1e6);
    if (sum.flops > 0)
      std::printf(" %7.1f GFLOP/s, %4.2f of the peak", sum.flops / sum.time * 1e-9,
                  sum.flops / sum.time / peak);
    std::printf(", %4.1f %% of the step\n", 100 * sum.time / best_sum);
  }
  std::sort(paired.begin(), paired.end());
  std::printf(
      "  step: best %.3f ms, operators' bests together %.3f ms, limit %.3f ms: %.2fx; "
      "paired with the peak: median %.2fx, best decile %.2fx\n",
      whole * 1e3, best_sum * 1e3, work / peak * 1e3, whole * peak / work,
      paired[paired.size() / 2], paired[paired.size() / 10]);
}

}  // namespace
}  // namespace millrace::kernels

int main(int argc, char** argv) {
  using millrace::kernels::Network;
  std::vector<Network> networks;
  int first = 1;
  if (argc > 1 && std::string(argv[1]) == "AVX2") {
    hwy::GetChosenTarget().Update(HWY_AVX2);
    ++first;
  }
  for (int i = first; i + 3 < argc; i += 4) {
    Network n{};
    std::sscanf(argv[i], "%dx%d", &n.layers, &n.features);
    n.kernel = std::atoi(argv[i + 1]);
    n.height = std::atoi(argv[i + 2]);
    n.width = std::atoi(argv[i + 3]);
    networks.push_back(n);
  }
  if (networks.empty()) {
    networks = {{10, 16, 5, 16, 16},   {10, 16, 5, 32, 32}, {10, 16, 5, 64, 64},
                {10, 16, 5, 128, 128}, {10, 48, 5, 32, 32}, {10, 16, 15, 32, 32},
                {4, 32, 3, 96, 128},   {4, 32, 3, 112, 112}};
  }
  for (const Network& n : networks) millrace::kernels::measure(n);
}
