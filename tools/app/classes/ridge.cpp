#include "tools/app/classes/ridge.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

namespace millrace::app {
namespace {

constexpr double kRidge = 0.01;  // over the features' mean square, from their mean
constexpr double kUnknown = -1;  // score of a class without an example; the others' sum to 1
constexpr double kTiny = 1e-12;  // of features that are all the same

}  // namespace

Ridge::Ridge(const at::Tensor& features, const std::vector<std::int64_t>& labels,
             std::int64_t classes, bool bias)
    : labels_(at::tensor(labels, at::kLong).unsqueeze(1)),
      target_(at::zeros({labels_.size(0), classes}, at::kDouble).scatter_(1, labels_, 1.0)) {
  const at::Tensor counts = target_.sum(0), all = labels_.squeeze(1);
  known_ = counts.gt(0);
  taught_ = known_.sum().item<double>();
  shares_ = (taught_ * counts).reciprocal().index_select(0, all);
  const at::Tensor shares = shares_.to(at::kFloat),
                   means = (target_ * shares_.unsqueeze(1)).t().to(at::kFloat).mm(features);
  rates_ = features.addcmul(means.index_select(0, all), at::scalar_tensor(taught_, at::kFloat), -1)
               .square_()
               .t()
               .mv(shares);
  rates_ = (rates_ + rates_.mean().clamp_min(kTiny)).rsqrt_();
  mean_ = bias ? means.sum(0) : at::zeros_like(rates_);
  if (bias) target_ -= known_.to(at::kDouble) / taught_;
  scaled_ = (features - mean_).mul_(rates_);

  at::Tensor gram = scaled_.mm(scaled_.t()).to(at::kDouble);
  const double size = std::max(kTiny, gram.diagonal().dot(shares_).item<double>());
  gram.diagonal().add_(shares_.reciprocal() * (kRidge * size / double(labels.size())));
  const at::Tensor factor = std::get<0>(at::linalg_cholesky_ex(gram));
  solution_ = at::cholesky_solve(target_, factor);
  inverse_ = at::cholesky_inverse(factor);
}

at::Tensor Ridge::without(const at::Tensor& rows) const {
  const at::Tensor among = inverse_.index_select(0, rows).index_select(1, rows);
  return target_.index_select(0, rows) -
         at::cholesky_solve(solution_.index_select(0, rows),
                            std::get<0>(at::linalg_cholesky_ex(among)));
}

double Ridge::sharpness() const {
  if (taught_ < 2) return 1;
  const at::Tensor scores = (target_ - solution_ / inverse_.diagonal().unsqueeze(1))
                                .masked_fill(known_.logical_not(), kUnknown);
  std::pair<double, double> best{};  // cross-entropy, sharpness
  for (const double sharpness : {1.0, 2.0, 4.0, 8.0}) {
    const at::Tensor logs = at::log_softmax(scores * sharpness, 1).gather(1, labels_).squeeze(1);
    const double loss = -logs.dot(shares_).item<double>();
    if (best.second == 0 || loss < best.first) best = {loss, sharpness};
  }
  return best.second;
}

at::Tensor Ridge::weight(double sharpness) const {
  return (solution_ * sharpness).to(at::kFloat).t().mm(scaled_).mul_(rates_);
}

at::Tensor Ridge::bias(const at::Tensor& weight, double sharpness, bool scores) const {
  const at::Tensor shares = at::where(known_, 1 / taught_, scores ? kUnknown : 0.0);
  return (shares * sharpness).to(at::kFloat) - weight.mv(mean_);
}

}  // namespace millrace::app
