#include "stages/optimizer.h"

#include <ATen/ATen.h>  // operators

#include <cmath>      // bias correction
#include <map>        // table of kinds
#include <stdexcept>  // std::invalid_argument

namespace millrace::stages {
namespace {

/// The rate as it is now.
class Rated : public Optimizer {
 public:
  explicit Rated(const OptimizerSpec& spec) : spec_(spec) {}

 protected:
  double lr() const { return spec_.lr * rate_; }
  const OptimizerSpec spec_;
};

using State = std::vector<std::pair<std::string, at::Tensor>>;

// Each step() is torch.optim's single-tensor formula, in its order of operations, so that a stage
// and a PyTorch loop round alike.

class Sgd final : public Rated {
 public:
  Sgd(const OptimizerSpec& spec, const at::Tensor& weights) : Rated(spec) {
    if (spec.momentum != 0) momentum_ = at::zeros_like(weights);
  }

  void step(at::Tensor& weights, at::Tensor& gradient) override {
    if (spec_.weight_decay != 0) gradient.add_(weights, spec_.weight_decay);
    if (spec_.momentum == 0) {
      weights.add_(gradient, -lr());
      return;
    }
    momentum_.mul_(spec_.momentum).add_(gradient);
    if (spec_.spike_delay > 0) {
      const double a = std::pow(spec_.momentum, double(spec_.spike_delay));
      weights.add_(momentum_, -lr() * a).add_(gradient, -lr() * (1 - a) / (1 - spec_.momentum));
      return;
    }
    weights.add_(momentum_, -lr());
  }

  State state() const override {
    return momentum_.defined() ? State{{"momentum", momentum_}} : State{};
  }

 private:
  at::Tensor momentum_;
};

class RmsProp final : public Rated {
 public:
  RmsProp(const OptimizerSpec& spec, const at::Tensor& weights)
      : Rated(spec), square_(at::zeros_like(weights)), scratch_(at::empty_like(weights)) {
    if (spec.momentum != 0) momentum_ = at::zeros_like(weights);
  }

  void step(at::Tensor& weights, at::Tensor& gradient) override {
    if (spec_.weight_decay != 0) gradient.add_(weights, spec_.weight_decay);
    square_.mul_(spec_.alpha).addcmul_(gradient, gradient, 1 - spec_.alpha);
    at::sqrt_out(scratch_, square_).add_(spec_.eps);
    if (spec_.momentum == 0) {
      weights.addcdiv_(gradient, scratch_, -lr());
      return;
    }
    momentum_.mul_(spec_.momentum).addcdiv_(gradient, scratch_);
    weights.add_(momentum_, -lr());
  }

  State state() const override {
    State state = {{"square", square_}};
    if (momentum_.defined()) state.emplace_back("momentum", momentum_);
    return state;
  }

 private:
  at::Tensor square_, scratch_, momentum_;
};

/// Kingma and Ba, arXiv 1412.6980; decoupled decay: Loshchilov and Hutter, arXiv 1711.05101.
class Adam final : public Rated {
 public:
  Adam(const OptimizerSpec& spec, const at::Tensor& weights, bool decoupled)
      : Rated(spec),
        decoupled_(decoupled),
        mean_(at::zeros_like(weights)),
        square_(at::zeros_like(weights)),
        scratch_(at::empty_like(weights)),
        steps_(at::zeros({1}, weights.options())) {}

  void step(at::Tensor& weights, at::Tensor& gradient) override {
    const double steps = (steps_ += 1).item<float>();
    if (spec_.weight_decay != 0) {
      if (decoupled_) {
        weights.mul_(1 - lr() * spec_.weight_decay);
      } else {
        gradient.add_(weights, spec_.weight_decay);
      }
    }
    mean_.lerp_(gradient, 1 - spec_.beta1);
    square_.mul_(spec_.beta2).addcmul_(gradient, gradient, 1 - spec_.beta2);
    const double correction1 = 1 - std::pow(spec_.beta1, steps);
    const double correction2 = 1 - std::pow(spec_.beta2, steps);
    at::sqrt_out(scratch_, square_).div_(std::sqrt(correction2)).add_(spec_.eps);
    weights.addcdiv_(mean_, scratch_, -(lr() / correction1));
  }

  State state() const override { return {{"mean", mean_}, {"square", square_}, {"steps", steps_}}; }

 private:
  bool decoupled_;
  at::Tensor mean_, square_, scratch_;
  at::Tensor steps_;  ///< exact to 16 million, where the corrections are long 1
};

using Maker = std::unique_ptr<Optimizer> (*)(const OptimizerSpec&, const at::Tensor&);

const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> table = {
      {"sgd",
       [](const OptimizerSpec& s, const at::Tensor& w) -> std::unique_ptr<Optimizer> {
         return std::make_unique<Sgd>(s, w);
       }},
      {"rmsprop",
       [](const OptimizerSpec& s, const at::Tensor& w) -> std::unique_ptr<Optimizer> {
         return std::make_unique<RmsProp>(s, w);
       }},
      {"adam",
       [](const OptimizerSpec& s, const at::Tensor& w) -> std::unique_ptr<Optimizer> {
         return std::make_unique<Adam>(s, w, false);
       }},
      {"adamw", [](const OptimizerSpec& s, const at::Tensor& w) -> std::unique_ptr<Optimizer> {
         return std::make_unique<Adam>(s, w, true);
       }}};
  return table;
}

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSpec& spec, const at::Tensor& weights) {
  const auto maker = makers().find(spec.kind);
  if (maker == makers().end())
    throw std::invalid_argument("optimizer.kind: unknown \"" + spec.kind + "\"");
  return maker->second(spec, weights);
}

const std::vector<std::string>& optimizer_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> list;
    for (const auto& [name, maker] : makers()) list.push_back(name);
    return list;
  }();
  return names;
}

}  // namespace millrace::stages
