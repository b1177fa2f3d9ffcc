#include "capture/program/kernels/row_functions.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "capture/program/kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/row_functions.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Highway wants its own contributions after highway.h.
#include "capture/program/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

/// Calls work(first element, its lanes) for each vector of a row.
template <class Work>
HWY_INLINE void each_vector(std::size_t count, const Work& work) {
  for (std::size_t i = 0; i < count; i += kLanes) work(i, first_lanes(count - i));
}

/// The sum over a row of of(first element, lanes), in float.
template <class Of>
HWY_INLINE float sum_of_row(std::size_t count, const Of& of) {
  V sum = hn::Zero(D());
  each_vector(count, [&](std::size_t i, auto part)
                         HWY_ATTR { sum = hn::Add(sum, only_part(part, of(i, part))); });
  return hn::GetLane(hn::SumOfLanes(D(), sum));
}

void norm_row(const float* x, const GroupNormOperands& o, double eps, std::size_t count,
              std::size_t r) {
  const D d;
  const float n = float(count);
  const float mean =
      sum_of_row(count, [&](std::size_t i, auto part) HWY_ATTR { return load_part(part, x + i); }) /
      n;
  const V about = hn::Set(d, mean);
  const float squares = sum_of_row(count, [&](std::size_t i, auto part) HWY_ATTR {
    const V away = hn::Sub(load_part(part, x + i), about);
    return hn::Mul(away, away);
  });
  const float rstd = float(1 / std::sqrt(double(squares / n) + eps));
  const V factor = hn::Set(d, rstd);
  float* const to = o.destination + r * count;
  each_vector(count, [&](std::size_t i, auto part) HWY_ATTR {
    V v = hn::Mul(hn::Sub(load_part(part, x + i), about), factor);
    if (o.weight) v = hn::Mul(v, load_part(part, o.weight + i));
    if (o.bias) v = hn::Add(v, load_part(part, o.bias + i));
    store_part(v, part, to + i);
  });
  o.mean[r] = mean;
  o.rstd[r] = rstd;
}

/// With g the gradient by the normed x, h: rstd * (g - mean of g - h * mean of g * h).
void norm_gradient_row(const GroupNormOperands& o, std::size_t count, std::size_t r) {
  const D d;
  const V mean = hn::Set(d, o.mean[r]), rstd = hn::Set(d, o.rstd[r]);
  const float *x = o.source + r * count, *dy = o.gradient + r * count;
  const auto normed = [&](std::size_t i, auto part)
                          HWY_ATTR { return hn::Mul(hn::Sub(load_part(part, x + i), mean), rstd); };
  const auto gradient = [&](std::size_t i, auto part) HWY_ATTR {
    const V g = load_part(part, dy + i);
    return o.weight ? hn::Mul(g, load_part(part, o.weight + i)) : g;
  };
  const V sum = hn::Set(d, sum_of_row(count, gradient) / float(count));
  const float products = sum_of_row(count, [&](std::size_t i, auto part) HWY_ATTR {
    return hn::Mul(gradient(i, part), normed(i, part));
  });
  const V product = hn::Set(d, products / float(count));
  float* const to = o.destination + r * count;
  each_vector(count, [&](std::size_t i, auto part) HWY_ATTR {
    const V rest = hn::NegMulAdd(normed(i, part), product, hn::Sub(gradient(i, part), sum));
    store_part(hn::Mul(rest, rstd), part, to + i);
  });
}

/// Of weight and bias, elements [begin, end).
void norm_weight_gradients(const GroupNormOperands& o, const Matrix& m, std::size_t begin,
                           std::size_t end) {
  const D d;
  each_vector(end - begin, [&](std::size_t i, auto part) HWY_ATTR {
    V of_weight = hn::Zero(d), of_bias = hn::Zero(d);
    for (std::size_t r = 0; r < m.rows; ++r) {
      const std::size_t at = r * m.row + begin + i;
      const V dy = load_part(part, o.gradient + at);
      const V away = hn::Sub(load_part(part, o.source + at), hn::Set(d, o.mean[r]));
      of_weight = hn::MulAdd(dy, hn::Mul(away, hn::Set(d, o.rstd[r])), of_weight);
      of_bias = hn::Add(of_bias, dy);
    }
    if (o.weight_gradient) store_part(of_weight, part, o.weight_gradient + begin + i);
    if (o.bias_gradient) store_part(of_bias, part, o.bias_gradient + begin + i);
  });
}

void softmax_row(const float* x, bool logarithm, float* made, std::size_t count) {
  const D d;
  float most = -std::numeric_limits<float>::infinity();
  for (std::size_t i = 0; i < count; ++i) most = x[i] > most || std::isnan(x[i]) ? x[i] : most;
  const V largest = hn::Set(d, most);
  const auto power = [&](std::size_t i, auto part)
                         HWY_ATTR { return exp_below(hn::Sub(load_part(part, x + i), largest)); };
  const float sum = sum_of_row(count, power);
  const V shift = hn::Set(d, most + std::log(sum)), factor = hn::Set(d, 1 / sum);
  each_vector(count, [&](std::size_t i, auto part) HWY_ATTR {
    const V v =
        logarithm ? hn::Sub(load_part(part, x + i), shift) : hn::Mul(power(i, part), factor);
    store_part(v, part, made + i);
  });
}

/// Softmax y: y * (dy - sum of dy * y). Its logarithm z: dy - exp(z) * sum of dy.
void softmax_gradient_row(const float* dy, const float* y, bool logarithm, float* to,
                          std::size_t count) {
  const D d;
  const V sum = hn::Set(d, sum_of_row(count, [&](std::size_t i, auto part) HWY_ATTR {
                          const V g = load_part(part, dy + i);
                          return logarithm ? g : hn::Mul(g, load_part(part, y + i));
                        }));
  each_vector(count, [&](std::size_t i, auto part) HWY_ATTR {
    const V g = load_part(part, dy + i), made = load_part(part, y + i);
    const V v = logarithm ? hn::NegMulAdd(exp_below(made), sum, g) : hn::Mul(made, hn::Sub(g, sum));
    store_part(v, part, to + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(norm_row);
HWY_EXPORT(norm_gradient_row);
HWY_EXPORT(norm_weight_gradients);
HWY_EXPORT(softmax_row);
HWY_EXPORT(softmax_gradient_row);

void layer_norm(const Matrix& m, double eps, const GroupNormOperands& o, Share share) {
  const auto [begin, end] = share.of(m.rows);
  for (std::size_t r = begin; r < end; ++r)
    HWY_DYNAMIC_DISPATCH(norm_row)(o.source + r * m.row, o, eps, m.row, r);
}

void layer_norm_gradient(const Matrix& m, const GroupNormOperands& o, Share share) {
  const auto [begin, end] = share.of(m.rows);
  for (std::size_t r = begin; r < end && o.destination; ++r)
    HWY_DYNAMIC_DISPATCH(norm_gradient_row)(o, m.row, r);
  if (!o.weight_gradient && !o.bias_gradient) return;
  const auto [first, last] = share.of(m.row, lanes());
  HWY_DYNAMIC_DISPATCH(norm_weight_gradients)(o, m, first, last);
}

void softmax(const Matrix& m, bool logarithm, const float* source, float* made, Share share) {
  const auto [begin, end] = share.of(m.rows);
  for (std::size_t r = begin; r < end; ++r)
    HWY_DYNAMIC_DISPATCH(softmax_row)(source + r * m.row, logarithm, made + r * m.row, m.row);
}

void softmax_gradient(const Matrix& m, bool logarithm, const float* gradient, const float* made,
                      float* destination, Share share) {
  const auto [begin, end] = share.of(m.rows);
  for (std::size_t r = begin; r < end; ++r) {
    const std::size_t at = r * m.row;
    HWY_DYNAMIC_DISPATCH(softmax_gradient_row)
    (gradient + at, made + at, logarithm, destination + at, m.row);
  }
}

}  // namespace millrace::kernels
#endif
