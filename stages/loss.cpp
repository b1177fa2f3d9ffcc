#include "stages/loss.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "stages/additions.h"

namespace millrace::stages {
namespace {

at::Tensor mse(const at::Tensor& prediction, const at::Tensor& target) {
  return at::mse_loss(prediction, target);
}
float squared(float prediction, float target) {
  return (prediction - target) * (prediction - target);
}

at::Tensor l1(const at::Tensor& prediction, const at::Tensor& target) {
  return at::l1_loss(prediction, target);
}
float absolute(float prediction, float target) {
  return std::fabs(prediction - target);
}

at::Tensor huber(const at::Tensor& prediction, const at::Tensor& target) {
  return at::huber_loss(prediction, target);
}
float near_squared(float prediction, float target) {
  const float error = std::fabs(prediction - target);
  return error <= 1 ? 0.5f * error * error : error - 0.5f;
}

at::Tensor cross_entropy(const at::Tensor& prediction, const at::Tensor& target) {
  return at::cross_entropy_loss(prediction.flatten(1), target.flatten(1));
}
float surprise(float probability, float target) {
  return target > 0 ? -target * std::log(probability) : 0.0f;
}

/// A deque: whoever holds an entry keeps it when another is added.
std::deque<LossType>& loss_table() {
  static std::deque<LossType> all = {
      {"mse", "squared error, mean over all elements", mse, squared},
      {"l1", "absolute error, mean over all elements", l1, absolute},
      {"huber", "squared error up to 1, absolute beyond, mean over all elements", huber,
       near_squared},
      {"cross-entropy",
       "of a class: the network gives scores, of which softmax makes probabilities", cross_entropy,
       surprise, true}};
  return all;
}

}  // namespace

const std::deque<LossType>& loss_types() {
  return loss_table();
}

void add_loss_type(LossType type) {
  for (const LossType& other : loss_table()) {
    if (other.name == type.name)
      throw std::invalid_argument("loss " + type.name + " is there already");
  }
  loss_table().push_back(std::move(type));
}

const LossType& loss_type(const std::string& name) {
  const auto& all = loss_types();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const LossType& type) { return type.name == name; });
  if (found == all.end()) throw std::invalid_argument("task.loss: unknown loss \"" + name + "\"");
  return *found;
}

}  // namespace millrace::stages
