// Functions with sums or extremes of groups or rows: norms, softmax, squared errors, bytes.
#include <algorithm>
#include <cmath>
#include <limits>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/norms.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels::HWY_NAMESPACE {

constexpr std::size_t kChunk = 64;  ///< pixels summed in float

/// sums[c] = sum of left, products[c] = sum of left * (right - origin) for channels [first, last);
/// with `kSquares`, left is right - origin, too.
template <bool kSquares>
void add_up(const float* left, const float* right, const float* origin, std::size_t pixels,
            std::size_t channels, std::size_t first, std::size_t last, double* sums,
            double* products) {
  HWY_ALIGN float s[kLanes], p[kLanes];
  std::fill(sums + first, sums + last, 0.0);
  std::fill(products + first, products + last, 0.0);
  for (std::size_t begin = 0; begin < pixels; begin += kChunk) {
    const std::size_t end = std::min(begin + kChunk, pixels);
    each_vector(first, last, [&](const auto& e) HWY_ATTR {
      const V about = e.load(origin);
      V sum[2] = {hn::Zero(d), hn::Zero(d)}, product[2] = {hn::Zero(d), hn::Zero(d)};
      for (std::size_t i = begin; i < end; ++i) {
        const V r = hn::Sub(e.load(right + i * channels), about);
        const V l = kSquares ? r : e.load(left + i * channels);
        sum[i % 2] = hn::Add(sum[i % 2], l);
        product[i % 2] = hn::MulAdd(l, r, product[i % 2]);
      }
      hn::Store(hn::Add(sum[0], sum[1]), d, s);
      hn::Store(hn::Add(product[0], product[1]), d, p);
      for (std::size_t lane = 0; lane < std::min(kLanes, last - e.at); ++lane) {
        sums[e.at + lane] += double(s[lane]);
        products[e.at + lane] += double(p[lane]);
      }
    });
  }
}

/// Calls add_up(); without a gradient, for squares.
void products(const float* gradient, const float* source, const float* origin, std::size_t pixels,
              std::size_t channels, std::size_t first, std::size_t last, double* sums,
              double* of_both) {
  const auto add = gradient ? add_up<false> : add_up<true>;
  add(gradient, source, origin, pixels, channels, first, last, sums, of_both);
}

/// destination = source * of_source[c] + shift[c], and with a gradient + gradient * of_gradient[c].
void combine(const float* gradient, const float* of_gradient, const float* source,
             const float* of_source, const float* shift, std::size_t pixels, std::size_t channels,
             float* destination) {
  for (std::size_t at = 0; at < pixels * channels; at += channels) {
    each_vector(0, channels, [&](const auto& e) HWY_ATTR {
      V made = hn::MulAdd(e.load(source + at), e.load(of_source), e.load(shift));
      if (gradient) made = hn::MulAdd(e.load(gradient + at), e.load(of_gradient), made);
      e.store(destination + at, made);
    });
  }
}

/// A row of elements e: their sum in float, their maximum, or NaN if there is one, and each.
struct Row {
  std::size_t count;
  template <class Of>
  HWY_INLINE float sum(const Of& of) const {
    V sum = hn::Zero(d);
    each_vector(0, count, [&](const auto& e) HWY_ATTR { sum = hn::Add(sum, e.only(of(e))); });
    return hn::GetLane(hn::SumOfLanes(d, sum));
  }
  HWY_INLINE float largest(const float* x) const {
    const auto larger = [](float v, float most) { return v > most || std::isnan(v) ? v : most; };
    HWY_ALIGN float most[kLanes];
    V all = hn::Set(d, -std::numeric_limits<float>::infinity());
    std::size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      const V v = hn::LoadU(d, x + i);
      all = hn::IfThenElse(hn::Or(hn::Gt(v, all), hn::IsNaN(v)), v, all);
    }
    hn::Store(all, d, most);
    for (std::size_t lane = 1; lane < kLanes; ++lane) most[0] = larger(most[lane], most[0]);
    for (; i < count; ++i) most[0] = larger(x[i], most[0]);
    return most[0];
  }
  template <class Work>
  HWY_INLINE void each(const Work& work) const {
    each_vector(0, count, work);
  }
};

HWY_INLINE void norm_row(const NormArguments& o, std::size_t r) {
  const Row row{std::size_t(o.size)};
  const float *const x = o.source + r * row.count, n = float(o.size);
  const float mean = row.sum([&](const auto& e) HWY_ATTR { return e.load(x); }) / n;
  const V about = hn::Set(d, mean);
  const float squares = row.sum([&](const auto& e) HWY_ATTR {
    const V away = hn::Sub(e.load(x), about);
    return hn::Mul(away, away);
  });
  const float rstd = float(1 / std::sqrt(double(squares / n) + o.eps));
  const V factor = hn::Set(d, rstd);
  float* const to = o.destination + r * row.count;
  row.each([&](const auto& e) HWY_ATTR {
    V v = hn::Mul(hn::Sub(e.load(x), about), factor);
    if (o.weight) v = hn::Mul(v, e.load(o.weight));
    if (o.bias) v = hn::Add(v, e.load(o.bias));
    e.store(to, v);
  });
  o.mean[r] = mean;
  o.rstd[r] = rstd;
}

void layer_norm(const NormArguments& o, Share share) {
  const auto [begin, end] = share.of(std::size_t(o.groups));
  for (std::size_t r = begin; r < end; ++r) norm_row(o, r);
}

/// With g = dy * weight and h the normalized x: rstd * (g - mean of g - h * mean of g * h).
HWY_INLINE void norm_gradient_row(const NormArguments& o, std::size_t r) {
  const Row row{std::size_t(o.size)};
  const V mean = hn::Set(d, o.mean[r]), rstd = hn::Set(d, o.rstd[r]);
  const float *x = o.source + r * row.count, *dy = o.gradient + r * row.count;
  const auto normed = [&](const auto& e)
                          HWY_ATTR { return hn::Mul(hn::Sub(e.load(x), mean), rstd); };
  const auto gradient = [&](const auto& e) HWY_ATTR {
    const V g = e.load(dy);
    return o.weight ? hn::Mul(g, e.load(o.weight)) : g;
  };
  const V sum = hn::Set(d, row.sum(gradient) / float(o.size));
  const float products =
      row.sum([&](const auto& e) HWY_ATTR { return hn::Mul(gradient(e), normed(e)); });
  const V product = hn::Set(d, products / float(o.size));
  float* const to = o.destination + r * row.count;
  row.each([&](const auto& e) HWY_ATTR {
    const V rest = hn::NegMulAdd(normed(e), product, hn::Sub(gradient(e), sum));
    e.store(to, hn::Mul(rest, rstd));
  });
}

/// Gradients of weight and bias, elements [begin, end).
HWY_INLINE void norm_weight_gradients(const NormArguments& o, std::size_t begin, std::size_t end) {
  const std::size_t size = std::size_t(o.size);
  each_vector(begin, end, [&](const auto& e) HWY_ATTR {
    V of_weight = hn::Zero(d), of_bias = hn::Zero(d);
    for (std::size_t r = 0; r < std::size_t(o.groups); ++r) {
      const V dy = e.load(o.gradient + r * size);
      const V away = hn::Sub(e.load(o.source + r * size), hn::Set(d, o.mean[r]));
      of_weight = hn::MulAdd(dy, hn::Mul(away, hn::Set(d, o.rstd[r])), of_weight);
      of_bias = hn::Add(of_bias, dy);
    }
    if (o.weight_gradient) e.store(o.weight_gradient, of_weight);
    if (o.bias_gradient) e.store(o.bias_gradient, of_bias);
  });
}

void layer_norm_gradient(const NormArguments& o, Share share) {
  const auto [begin, end] = share.of(std::size_t(o.groups));
  for (std::size_t r = begin; r < end && o.destination; ++r) norm_gradient_row(o, r);
  if (!o.weight_gradient && !o.bias_gradient) return;
  const auto [first, last] = share.of(std::size_t(o.size), kLanes);
  norm_weight_gradients(o, first, last);
}

#define FORMULA HWY_INLINE
#include "capture/program/operations/softmax-inl.h"
#undef FORMULA

void softmax(const RowArguments& r, Share share) {
  const std::size_t count = std::size_t(r.row);
  const auto [begin, end] = share.of(std::size_t(r.rows));
  for (std::size_t at = begin * count; at < end * count; at += count) {
    if (r.b) {
      softmax_gradient_row(Row{count}, r, r.a + at, r.b + at, r.to + at);
    } else {
      softmax_row(Row{count}, r, r.a + at, r.to + at);
    }
  }
}

/// One row of the loss: returns the sum of squares and writes scale * difference if wanted.
float squared_error_row(const SquaredErrorArguments& a, std::size_t first, float scale) {
  const float *const prediction = a.prediction + first, *const target = a.target + first;
  const V factor = hn::Set(d, scale);
  V sum = hn::Zero(d);
  each_vector(0, std::size_t(a.row), [&](const auto& e) HWY_ATTR {
    const V p = e.load(prediction), difference = hn::Sub(p, e.load(target));
    sum = hn::MulAdd(difference, difference, sum);
    if (!a.scale) return;
    const V g = hn::Mul(factor, difference);
    e.store(a.out + first, a.through_sigmoid ? sigmoid_gradient_of(g, p) : g);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

using Integers = hn::Rebind<std::int32_t, D>;
using Bytes = hn::Rebind<std::uint8_t, D>;

void quantize(const QuantizedArguments& q, Share share) {
  const auto [begin, end] = share.of(std::size_t(q.lines));
  const std::size_t count = std::size_t(q.width), whole = count / kLanes * kLanes;
  for (std::size_t line = begin; line < end; ++line) {
    const float* const x = q.values + line * count;
    std::uint8_t* const to = q.bytes + line * count;
    V lows = hn::Set(d, x[0]), highs = lows;
    for (std::size_t i = 0; i < whole; i += kLanes) {
      const V v = hn::LoadU(d, x + i);
      lows = hn::Min(lows, v);
      highs = hn::Max(highs, v);
    }
    float least = hn::GetLane(hn::MinOfLanes(d, lows));
    float most = hn::GetLane(hn::MaxOfLanes(d, highs));
    for (std::size_t i = whole; i < count; ++i) {
      least = std::min(least, x[i]);
      most = std::max(most, x[i]);
    }
    const float step = (most - least) * (1.0f / 255),
                inverse = step >= std::numeric_limits<float>::min() ? 1 / step : 0;
    const V low = hn::Set(d, least), factor = hn::Set(d, inverse);
    for (std::size_t i = 0; i < whole; i += kLanes) {
      const V scaled = hn::Mul(hn::Sub(hn::LoadU(d, x + i), low), factor);
      hn::StoreU(hn::DemoteTo(Bytes(), hn::NearestInt(scaled)), Bytes(), to + i);
    }
    for (std::size_t i = whole; i < count; ++i)
      to[i] = std::uint8_t(std::min(255.0f, std::nearbyint((x[i] - least) * inverse)));
    q.ranges[2 * line] = least;
    q.ranges[2 * line + 1] = step;
  }
}

void dequantize(const QuantizedArguments& q, Share share) {
  const auto [begin, end] = share.of(std::size_t(q.lines));
  const std::size_t count = std::size_t(q.width), whole = count / kLanes * kLanes;
  for (std::size_t line = begin; line < end; ++line) {
    const std::uint8_t* const x = q.bytes + line * count;
    float* const to = q.made + line * count;
    const float least = q.ranges[2 * line], step = q.ranges[2 * line + 1];
    const V low = hn::Set(d, least), factor = hn::Set(d, step);
    for (std::size_t i = 0; i < whole; i += kLanes) {
      const auto bytes = hn::PromoteTo(Integers(), hn::LoadU(Bytes(), x + i));
      hn::StoreU(hn::MulAdd(hn::ConvertTo(d, bytes), factor, low), d, to + i);
    }
    for (std::size_t i = whole; i < count; ++i) to[i] = std::fma(float(x[i]), step, least);
  }
}

}  // namespace millrace::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(products);
HWY_EXPORT(combine);
HWY_EXPORT(squared_error_row);
TEAM_KERNEL(layer_norm, NormArguments)
TEAM_KERNEL(layer_norm_gradient, NormArguments)
TEAM_KERNEL(softmax, RowArguments)
TEAM_KERNEL(quantize, QuantizedArguments)
TEAM_KERNEL(dequantize, QuantizedArguments)

namespace {

/// A call's scratch: two sums per channel and three numbers.
struct Room {
  explicit Room(const NormArguments& o)
      : channels(std::size_t(o.groups * o.weights)),
        sums(reinterpret_cast<double*>(o.parts)),
        products(sums + channels),
        first(reinterpret_cast<float*>(products + channels)),
        second(first + channels),
        third(second + channels) {}
  const std::size_t channels;
  double *const sums, *const products;
  float *const first, *const second, *const third;
};

double weight_of(const NormArguments& o, std::size_t channel) {
  return o.weight ? double(o.weight[channel]) : 1.0;
}
/// rstd of a frozen norm, from the given variance.
double rstd_of(const NormArguments& o, std::size_t channel) {
  return 1 / std::sqrt(double(o.rstd[channel]) + o.eps);
}

void set_scale(const Room& room, const NormArguments& o, std::size_t c, float mean, double rstd) {
  const double factor = rstd * weight_of(o, c);
  room.first[c] = float(factor);
  room.second[c] = float((o.bias ? double(o.bias[c]) : 0.0) - double(mean) * factor);
}

/// The groups' mean and rstd, if not given, and the scales of their channels.
void sum_groups(const Room& room, const NormArguments& o) {
  const std::size_t each = std::size_t(o.weights);
  const double count = double(o.pixels);
  for (std::size_t c = 0; o.frozen && c < room.channels; ++c)
    set_scale(room, o, c, o.mean[c], rstd_of(o, c));
  for (std::size_t group = 0; !o.frozen && group < std::size_t(o.groups); ++group) {
    const std::size_t begin = group * each, end = begin + each;
    double sum = 0;
    for (std::size_t c = begin; c < end; ++c) sum += room.sums[c] + count * double(o.source[c]);
    const double middle = sum / (count * double(each));
    double squares = 0;  // about the middle
    for (std::size_t c = begin; c < end; ++c) {
      const double off = double(o.source[c]) - middle;
      squares += room.products[c] + off * (2 * room.sums[c] + count * off);
    }
    const double variance = std::max(0.0, squares / (count * double(each)));
    o.mean[group] = float(middle);
    o.rstd[group] = float(1 / std::sqrt(variance + o.eps));
    for (std::size_t c = begin; c < end; ++c) set_scale(room, o, c, o.mean[group], o.rstd[group]);
  }
}

/// The gradients of weight and bias, and per channel the terms of the source's gradient.
void sum_groups_of_gradient(const Room& room, const NormArguments& o) {
  float *const of_gradient = room.first, *const of_source = room.second, *const shift = room.third;
  const std::size_t each = std::size_t(o.weights);
  for (std::size_t c = 0; c < room.channels; ++c) {
    const double r = o.frozen ? rstd_of(o, c) : double(o.rstd[c / each]);
    if (o.weight_gradient) o.weight_gradient[c] = float(room.products[c] * r);
    if (o.bias_gradient) o.bias_gradient[c] = float(room.sums[c]);
    of_gradient[c] = float(r * weight_of(o, c));
    of_source[c] = 0;  // frozen: shifts the gradient, too
  }
  for (std::size_t group = 0; !o.frozen && group < std::size_t(o.groups); ++group) {
    const std::size_t begin = group * each, end = begin + each;
    const double r = o.rstd[group], share = 1 / (double(o.pixels) * double(each));
    double sum = 0, product = 0;
    for (std::size_t c = begin; c < end; ++c) {
      sum += weight_of(o, c) * room.sums[c];
      product += weight_of(o, c) * room.products[c];
    }
    const double factor = -r * r * r * product * share;
    std::fill(of_source + begin, of_source + end, float(factor));
    std::fill(shift + begin, shift + end, float(-r * sum * share - double(o.mean[group]) * factor));
  }
}

constexpr std::size_t kBlock = 16;  ///< channels, for any vector width

}  // namespace

void group_norm(const NormArguments& o, int phase, Share share) {
  const Room room(o);
  const std::size_t pixels = std::size_t(o.pixels);
  if (phase == 0) {
    if (o.frozen) return;
    const auto [begin, end] = share.of(room.channels, kBlock);
    return HWY_DYNAMIC_DISPATCH(products)(nullptr, o.source, o.source, pixels, room.channels, begin,
                                          end, room.sums, room.products);
  }
  if (phase == 1) return sum_groups(room, o);
  const auto [begin, end] = share.of(pixels);
  const std::size_t at = begin * room.channels;
  HWY_DYNAMIC_DISPATCH(combine)
  (nullptr, nullptr, o.source + at, room.first, room.second, end - begin, room.channels,
   o.destination + at);
}

void group_norm_gradient(const NormArguments& o, int phase, Share share) {
  const Room room(o);
  const std::size_t pixels = std::size_t(o.pixels);
  if (phase == 0) {
    const auto [begin, end] = share.of(room.channels, kBlock);
    float* const origin = room.first;
    for (std::size_t c = begin; c < end; ++c) origin[c] = o.mean[c / std::size_t(o.weights)];
    return HWY_DYNAMIC_DISPATCH(products)(o.gradient, o.source, origin, pixels, room.channels,
                                          begin, end, room.sums, room.products);
  }
  if (phase == 1) return sum_groups_of_gradient(room, o);
  if (!o.destination) return;
  const auto [begin, end] = share.of(pixels);
  const std::size_t at = begin * room.channels;
  if (o.frozen) {
    return HWY_DYNAMIC_DISPATCH(combine)(nullptr, nullptr, o.gradient + at, room.first, room.second,
                                         end - begin, room.channels, o.destination + at);
  }
  HWY_DYNAMIC_DISPATCH(combine)
  (o.gradient + at, room.first, o.source + at, room.second, room.third, end - begin, room.channels,
   o.destination + at);
}

void squared_error(const SquaredErrorArguments& a) {
  const float scale = float(2.0 / double(a.count)) * (a.scale ? *a.scale : 1);
  double sum = 0;
  for (int i = 0; i < a.count; i += a.row)
    sum += HWY_DYNAMIC_DISPATCH(squared_error_row)(a, std::size_t(i), scale);
  if (!a.scale) *a.out = float(sum / double(a.count));
}

}  // namespace millrace::kernels
#endif
