#include "stages/loss.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <stdexcept>

namespace millrace::stages {
namespace {

constexpr int kWindow = 11;  // ssim's, in pixels

at::Tensor mse(const at::Tensor& prediction, const at::Tensor& target, const LossTerm&) {
  return at::mse_loss(prediction, target);
}
float squared(float prediction, float target) {
  return (prediction - target) * (prediction - target);
}

at::Tensor l1(const at::Tensor& prediction, const at::Tensor& target, const LossTerm&) {
  return at::l1_loss(prediction, target);
}
float absolute(float prediction, float target) {
  return std::fabs(prediction - target);
}

at::Tensor huber(const at::Tensor& prediction, const at::Tensor& target, const LossTerm&) {
  return at::huber_loss(prediction, target);
}
float near_squared(float prediction, float target) {
  const float error = std::fabs(prediction - target);
  return error <= 1 ? 0.5f * error * error : error - 0.5f;
}

/// 1 - mean structural similarity (Wang et al., IEEE TIP 2004): windows of 11 x 11 pixels within
/// the picture, Gaussian with sigma 1.5; values from 0 to 1.
at::Tensor ssim(const at::Tensor& prediction, const at::Tensor& target, const LossTerm&) {
  constexpr double kC1 = 0.01 * 0.01, kC2 = 0.03 * 0.03;
  const at::Tensor place = at::arange(kWindow, prediction.options()) - kWindow / 2;
  const at::Tensor bell = at::exp(place * place / (-2 * 1.5 * 1.5));
  const at::Tensor line = bell / bell.sum();
  const std::int64_t c = prediction.size(1);
  const at::Tensor all = at::cat(
      {prediction, target, prediction * prediction, target * target, prediction * target}, 1);
  const at::Tensor down = line.view({1, 1, kWindow, 1}).expand({5 * c, 1, kWindow, 1});
  const at::Tensor along = line.view({1, 1, 1, kWindow}).expand({5 * c, 1, 1, kWindow});
  const auto blurred = [c](const at::Tensor& x, const at::Tensor& window) {
    return at::conv2d(x, window, {}, 1, at::IntArrayRef({0, 0}), 1, 5 * c);
  };
  const at::Tensor means = blurred(blurred(all, down), along);
  const std::vector<at::Tensor> m = means.chunk(5, 1);
  const at::Tensor xx = m[0] * m[0], yy = m[1] * m[1], xy = m[0] * m[1];
  const at::Tensor like = (2 * xy + kC1) * (2 * (m[4] - xy) + kC2);
  return 1 - (like / ((xx + yy + kC1) * (m[2] - xx + (m[3] - yy) + kC2))).mean();
}

/// For a vector, or per pixel: the mean over pixels that have a class.
at::Tensor cross_entropy(const at::Tensor& prediction, const at::Tensor& target,
                         const LossTerm& term) {
  constexpr std::int64_t kNone = -100;
  if (target.size(2) == 1 && target.size(3) == 1) {
    return at::cross_entropy_loss(prediction.flatten(1), target.flatten(1), {}, at::Reduction::Mean,
                                  kNone, term.label_smoothing);
  }
  const at::Tensor classes = at::where(target.amax(1) > 0, target.argmax(1),
                                       at::full({}, kNone, target.options().dtype(at::kLong)));
  return at::cross_entropy_loss(prediction, classes, {}, at::Reduction::Mean, kNone,
                                term.label_smoothing);
}
float surprise(float probability, float target) {
  return target > 0 ? -target * std::log(probability) : 0.0f;
}

/// A deque, so that adding an entry invalidates no reference.
std::deque<LossType>& loss_table() {
  static std::deque<LossType> all = {
      {"mse", "squared error, mean over all elements", mse, squared},
      {"l1", "absolute error, mean over all elements", l1, absolute},
      {"huber", "squared error up to 1, absolute beyond, mean over all elements", huber,
       near_squared},
      {"ssim", "1 - structural similarity, of windows of 11 x 11 pixels", ssim, nullptr, false,
       kWindow},
      {"cross-entropy",
       "of a class, or of each pixel's: the network gives scores, of which softmax makes "
       "probabilities",
       cross_entropy, surprise, true}};
  return all;
}

at::Tensor part(const at::Tensor& whole, const LossTerm& term) {
  return term.channels.empty() ? whole : whole.narrow(1, term.channels[0], term.channels[1]);
}

}  // namespace

const std::deque<LossType>& loss_types() {
  return loss_table();
}

void add_loss_type(LossType type) {
  if (std::ranges::count(loss_table(), type.name, &LossType::name) > 0)
    throw std::invalid_argument("loss " + type.name + " is already registered");
  loss_table().push_back(std::move(type));
}

std::string LossSpec::text() const {
  std::ostringstream out;
  for (const LossTerm& term : terms) {
    if (&term != &terms.front()) out << " + ";
    if (term.weight != 1) out << term.weight << " ";
    out << term.kind;
  }
  return out.str();
}

Loss::Loss(const LossSpec& spec) {
  for (const LossTerm& term : spec.terms) {
    const auto found = std::ranges::find(loss_types(), term.kind, &LossType::name);
    if (found == loss_types().end())
      throw std::invalid_argument("task.loss: unknown loss \"" + term.kind + "\"");
    terms_.push_back({&*found, term});
  }
}

at::Tensor Loss::prior(const at::Tensor& target) const {
  at::Tensor mean = at::zeros_like(target);
  for (const auto& [type, spec] : terms_) {
    at::Tensor mine = part(mean, spec);
    if (type->scores) mine.fill_(1.0 / double(mine.size(1)));
  }
  return mean;
}

at::Tensor Loss::counted(const at::Tensor& target) const {
  at::Tensor told = at::ones_like(target);
  for (const auto& [type, spec] : terms_) {
    if (type->scores) part(told, spec).copy_(part(target, spec).amax(1, true) > 0);
  }
  return told;
}

at::Tensor Loss::of(const at::Tensor& prediction, const at::Tensor& target, bool mean) const {
  at::Tensor total;
  for (const auto& [type, spec] : terms_) {
    const at::Tensor told = part(prediction, spec);
    at::Tensor one = type->of(mean && type->scores ? told.log() : told, part(target, spec), spec);
    if (spec.weight != 1) one = one * spec.weight;
    total = total.defined() ? total + one : one;
  }
  return total;
}

const LossType* Loss::single() const {
  const auto& [type, spec] = terms_.front();
  return terms_.size() == 1 && type->element && spec == LossTerm{.kind = spec.kind} ? type
                                                                                    : nullptr;
}

bool Loss::scores() const {
  return std::ranges::all_of(terms_, [](const Term& term) { return term.type->scores; });
}

void Loss::require_fit(std::int64_t channels, std::int64_t height, std::int64_t width) const {
  for (const auto& [type, spec] : terms_) {
    if (!spec.channels.empty() && spec.channels[0] + spec.channels[1] > channels) {
      throw std::invalid_argument("task.loss: " + spec.kind + " is of channels " +
                                  std::to_string(spec.channels[0]) + " to " +
                                  std::to_string(spec.channels[0] + spec.channels[1] - 1) +
                                  ", the network gives " + std::to_string(channels));
    }
    if ((height && height < type->least_side) || (width && width < type->least_side)) {
      throw std::invalid_argument("task.loss: " + spec.kind + " needs pictures of at least " +
                                  std::to_string(type->least_side) + "x" +
                                  std::to_string(type->least_side) + ", not " +
                                  std::to_string(width) + "x" + std::to_string(height));
    }
  }
}

}  // namespace millrace::stages
