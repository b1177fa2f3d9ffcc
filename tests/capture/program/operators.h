// Operators that step programs have kernels of, on random operands, and networks of them: for tests
// of cores' kernels and of a GPU's.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "capture/program/stage_programs.h"
#include "stages/layer.h"

namespace millrace::program {

using at::Tensor;
using Tensors = std::vector<Tensor>;

inline const c10::Device kGpu(at::kCUDA, 0);

/// Random sizes and numbers.
class Random {
 public:
  explicit Random(std::uint64_t seed);
  std::int64_t up_to(int most) { return std::int64_t(1 + sizes_() % unsigned(most)); }
  bool flip() { return sizes_() % 2 == 0; }
  /// A quarter or so on the other side of 0.
  Tensor numbers(at::IntArrayRef sizes) { return at::randn(sizes, numbers_) + 0.6; }

 private:
  at::Generator numbers_;
  std::minstd_rand sizes_;
};

/// What LibTorch's operators make of some tensors.
struct Operators {
  std::function<Tensors(const Tensors&)> body;
  Tensors given;
};
/// Operators of one kind, each time on other shapes.
struct Family {
  const char* name;
  Operators (*any)(Random& random);
  bool on_gpu = true;  ///< has kernels there
};
const std::vector<Family>& families();

/// All functions of elements that have kernels: of x, of x and y; gradients g at x, relu's first.
Operators functions_of(const Tensor& x, const Tensor& y);
Operators gradients_of(const Tensor& x, const Tensor& g);

/// Layers of pictures of 3x32x32, and the operators of them that have no kernel.
struct LayeredNet {
  const char* name;
  std::vector<stages::LayerSpec> layers;
  std::set<std::string> left;
};
const std::vector<LayeredNet>& layered_nets();
/// Trains layers by programs on `device` as eagerly on a core, within rounding. \returns what is
/// left to LibTorch's operators.
std::set<std::string> learn_as_eagerly(const std::vector<stages::LayerSpec>& layers,
                                       c10::Device device);

/// A stage, with calls that run as programs unless `eager`.
struct Learner {
  explicit Learner(stages::Stage made, const ProgramOptions& how = {}, bool is_eager = false)
      : stage(std::move(made)), options(how), eager(is_eager), arena(weights().device()) {}
  const Tensor& weights() const { return stage.parameters().flat(); }
  std::vector<capture::OperationInfo> operations() const {  ///< since the last forward
    return timed(step, arena.device(), 0);
  }
  template <class Body>
  void call(const Body& body) {
    if (eager) return body();
    step.push_back(record_call(stage, body, arena, options));
    step.back()->run();
  }
  /// Forward and backward. \returns the loss.
  float learn(const Tensor& x, const Tensor& target) {
    step.clear();
    stages::Activations kept;
    call([&] { kept = stage.forward({x}, target); });
    const float loss = kept.loss.item<float>();
    const stages::Adding adding{.first = stage.count_gradient()};
    call([&] { stage.backward(kept, {}, adding); });
    return loss;
  }
  void update() {
    const at::TensorOptions here = weights().options();
    const Tensor rate = at::ones({}, here.dtype(at::kDouble));
    Tensor skipped = at::zeros({}, here);
    const stages::Change change = stage.advance();
    call([&] { stage.update(change, rate, skipped); });
  }

  stages::Stage stage;
  const ProgramOptions options;
  const bool eager;
  Arena arena;
  Programs step;
};

/// One update from a sample that is its own target. \returns the loss.
inline float learn(Learner& learner, const Tensor& x) {
  const float loss = learner.learn(x, x);
  learner.update();
  return loss;
}

/// What the operators' program makes on a device, of memory full of NaN.
struct Made {
  Tensors results;
  std::vector<capture::OperationInfo> operations;
};
Made by_program(const Operators& of, c10::Device device, const ProgramOptions& options = {});
Tensors in_double(const Operators& of);

/// Updates by each optimizer with each correction, some of them spoiled by what is no number, in
/// one kernel each. \returns all that they leave.
Tensors expect_updates_as_in_double(c10::Device device, const ProgramOptions& options = {});

/// How far apart, by norm, of what is wanted, or of `least` if that is more.
double error(const Tensor& got, const Tensor& wanted, double least = 0);
void expect_near(const Tensors& got, const Tensors& wanted, double most = 2e-6);

/// Names of those that no kernel does.
std::set<std::string> left_to_libtorch(const std::vector<capture::OperationInfo>& operations);

}  // namespace millrace::program
