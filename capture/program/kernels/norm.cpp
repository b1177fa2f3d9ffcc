// Group norm and its gradient.
#include "capture/program/kernels/norm.h"

#include <algorithm>
#include <cmath>

#include "capture/program/kernels/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// Highway wants its own contributions after highway.h.
#include "capture/program/kernels/epilogue-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

constexpr std::size_t kChunk = 64;  ///< pixels summed in float

/// For each block of lanes of channels [begin, end): `work(first channel, mask)`.
template <class Work>
HWY_INLINE void each_block(std::size_t begin, std::size_t end, const Work& work) {
  for (std::size_t c = begin; c < end; c += kLanes) work(c, first_lanes(std::min(kLanes, end - c)));
}

/// sums[c] += sum of left, products[c] += sum of left * (right - origin) for channels [first,
/// last); with `squares` left is right - origin, too.
template <bool squares>
HWY_INLINE void add_up(const float* left, const float* right, const float* origin,
                       std::size_t pixels, std::size_t channels, std::size_t first,
                       std::size_t last, double* sums, double* products) {
  const D d;
  HWY_ALIGN float s[kLanes], p[kLanes];
  for (std::size_t begin = 0; begin < pixels; begin += kChunk) {
    const std::size_t end = std::min(begin + kChunk, pixels);
    each_block(first, last, [&](std::size_t c, auto part) {
      const V about = load_part(part, origin + c);
      V sum[2] = {hn::Zero(d), hn::Zero(d)}, product[2] = {hn::Zero(d), hn::Zero(d)};
      for (std::size_t i = begin; i < end; ++i) {
        const std::size_t at = i * channels + c;
        const V r = hn::Sub(load_part(part, right + at), about);
        const V l = squares ? r : load_part(part, left + at);
        sum[i % 2] = hn::Add(sum[i % 2], l);
        product[i % 2] = hn::MulAdd(l, r, product[i % 2]);
      }
      hn::Store(hn::Add(sum[0], sum[1]), d, s);
      hn::Store(hn::Add(product[0], product[1]), d, p);
      for (std::size_t lane = 0; lane < std::min(kLanes, last - c); ++lane) {
        sums[c + lane] += double(s[lane]);
        products[c + lane] += double(p[lane]);
      }
    });
  }
}

void moments(const float* source, const float* origin, std::size_t pixels, std::size_t channels,
             std::size_t first, std::size_t last, double* sums, double* squares) {
  add_up<true>(source, source, origin, pixels, channels, first, last, sums, squares);
}

void products(const float* gradient, const float* source, const float* origin, std::size_t pixels,
              std::size_t channels, std::size_t first, std::size_t last, double* sums,
              double* of_both) {
  add_up<false>(gradient, source, origin, pixels, channels, first, last, sums, of_both);
}

/// destination = source * scale[c] + shift[c].
void scale_and_shift(const float* source, const float* scale, const float* shift,
                     std::size_t pixels, std::size_t channels, float* destination) {
  for (std::size_t i = 0; i < pixels; ++i) {
    each_block(0, channels, [&](std::size_t c, auto part) {
      const std::size_t at = i * channels + c;
      const V made = hn::MulAdd(load_part(part, source + at), load_part(part, scale + c),
                                load_part(part, shift + c));
      store_part(made, part, destination + at);
    });
  }
}

/// destination = gradient * of_gradient[c] + source * of_source[c] + shift[c].
void combine(const float* gradient, const float* of_gradient, const float* source,
             const float* of_source, const float* shift, std::size_t pixels, std::size_t channels,
             float* destination) {
  for (std::size_t i = 0; i < pixels; ++i) {
    each_block(0, channels, [&](std::size_t c, auto part) {
      const std::size_t at = i * channels + c;
      const V from_source = hn::MulAdd(load_part(part, source + at), load_part(part, of_source + c),
                                       load_part(part, shift + c));
      const V made =
          hn::MulAdd(load_part(part, gradient + at), load_part(part, of_gradient + c), from_source);
      store_part(made, part, destination + at);
    });
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(moments);
HWY_EXPORT(products);
HWY_EXPORT(scale_and_shift);
HWY_EXPORT(combine);

namespace {

/// Room for a call: two sums a channel, and three numbers.
struct Room {
  Room(const GroupNorm& norm, double* scratch)
      : channels(std::size_t(norm.channels)),
        sums(scratch),
        products(scratch + channels),
        first(reinterpret_cast<float*>(scratch + 2 * channels)),
        second(first + channels),
        third(second + channels) {}
  void clear(std::size_t begin, std::size_t end) const {
    std::fill(sums + begin, sums + end, 0.0);
    std::fill(products + begin, products + end, 0.0);
  }
  const std::size_t channels;
  double *const sums, *const products;
  float *const first, *const second, *const third;
};

double rstd_of(const GroupNorm& norm, const GroupNormOperands& o, std::size_t channel) {
  return 1 / std::sqrt(double(o.rstd[channel]) + norm.eps);
}

/// What scales and shifts each channel by the statistics that are given.
void scale_by_given(const GroupNorm& norm, const Room& room, const GroupNormOperands& o) {
  for (std::size_t c = 0; c < room.channels; ++c) {
    const double factor = rstd_of(norm, o, c) * (o.weight ? double(o.weight[c]) : 1.0);
    room.first[c] = float(factor);
    room.second[c] = float((o.bias ? double(o.bias[c]) : 0.0) - double(o.mean[c]) * factor);
  }
}

/// The gradients of weight and bias, and what the source's is of the output's, by channel.
void scale_gradient_by_given(const GroupNorm& norm, const Room& room, const GroupNormOperands& o) {
  for (std::size_t c = 0; c < room.channels; ++c) {
    const double r = rstd_of(norm, o, c);
    if (o.weight_gradient) o.weight_gradient[c] = float(room.products[c] * r);
    if (o.bias_gradient) o.bias_gradient[c] = float(room.sums[c]);
    room.first[c] = float(r * (o.weight ? double(o.weight[c]) : 1.0));
    room.second[c] = 0;
  }
}

/// What scales and shifts each channel, and the groups' mean and rstd.
void sum_groups(const GroupNorm& norm, const Room& room, const GroupNormOperands& o) {
  float *const scale = room.first, *const shift = room.second;
  const std::size_t each = room.channels / std::size_t(norm.groups);
  const double count = double(norm.pixels);
  for (std::size_t group = 0; group < std::size_t(norm.groups); ++group) {
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
    o.rstd[group] = float(1 / std::sqrt(variance + norm.eps));
    for (std::size_t c = begin; c < end; ++c) {
      const double factor = double(o.rstd[group]) * (o.weight ? double(o.weight[c]) : 1.0);
      scale[c] = float(factor);
      shift[c] = float((o.bias ? double(o.bias[c]) : 0.0) - double(o.mean[group]) * factor);
    }
  }
}

/// The gradients of weight and bias, and what the source's is made of, by channel.
void sum_groups_of_gradient(const GroupNorm& norm, const Room& room, const GroupNormOperands& o) {
  float *const of_gradient = room.first, *const of_source = room.second, *const shift = room.third;
  const std::size_t each = room.channels / std::size_t(norm.groups);
  for (std::size_t c = 0; c < room.channels; ++c) {
    if (o.weight_gradient)
      o.weight_gradient[c] = float(room.products[c] * double(o.rstd[c / each]));
    if (o.bias_gradient) o.bias_gradient[c] = float(room.sums[c]);
  }
  for (std::size_t group = 0; group < std::size_t(norm.groups); ++group) {
    const std::size_t begin = group * each, end = begin + each;
    const double r = o.rstd[group], share = 1 / (double(norm.pixels) * double(each));
    double sum = 0, product = 0;
    for (std::size_t c = begin; c < end; ++c) {
      const double w = o.weight ? double(o.weight[c]) : 1.0;
      sum += w * room.sums[c];
      product += w * room.products[c];
    }
    const double factor = -r * r * r * product * share;
    for (std::size_t c = begin; c < end; ++c) {
      of_gradient[c] = float(r * (o.weight ? double(o.weight[c]) : 1.0));
      of_source[c] = float(factor);
      shift[c] = float(-r * sum * share - double(o.mean[group]) * factor);
    }
  }
}

constexpr std::size_t kBlock = 16;  ///< channels, of any vector's width

}  // namespace

void group_norm(const GroupNorm& norm, const GroupNormOperands& o, int phase, Share share) {
  const Room room(norm, o.scratch);
  if (norm.frozen && phase == 0) return;
  if (norm.frozen && phase == 1) return scale_by_given(norm, room, o);
  if (phase == 0) {
    const auto [begin, end] = share.of(room.channels, kBlock);
    room.clear(begin, end);
    return HWY_DYNAMIC_DISPATCH(moments)(o.source, o.source, norm.pixels, room.channels, begin, end,
                                         room.sums, room.products);
  }
  if (phase == 1) return sum_groups(norm, room, o);
  const auto [begin, end] = share.of(norm.pixels);
  const std::size_t at = begin * room.channels;
  HWY_DYNAMIC_DISPATCH(scale_and_shift)
  (o.source + at, room.first, room.second, end - begin, room.channels, o.destination + at);
}

void group_norm_gradient(const GroupNorm& norm, const GroupNormOperands& o, int phase,
                         Share share) {
  const Room room(norm, o.scratch);
  if (phase == 0) {
    const std::size_t each = room.channels / std::size_t(norm.groups);
    const auto [begin, end] = share.of(room.channels, kBlock);
    room.clear(begin, end);
    float* const origin = room.first;
    for (std::size_t c = begin; c < end; ++c) origin[c] = o.mean[c / each];
    return HWY_DYNAMIC_DISPATCH(products)(o.gradient, o.source, origin, norm.pixels, room.channels,
                                          begin, end, room.sums, room.products);
  }
  if (phase == 1)
    return norm.frozen ? scale_gradient_by_given(norm, room, o)
                       : sum_groups_of_gradient(norm, room, o);
  if (!o.destination) return;
  const auto [begin, end] = share.of(norm.pixels);
  const std::size_t at = begin * room.channels;
  if (norm.frozen) {
    return HWY_DYNAMIC_DISPATCH(scale_and_shift)(o.gradient + at, room.first, room.second,
                                                 end - begin, room.channels, o.destination + at);
  }
  HWY_DYNAMIC_DISPATCH(combine)
  (o.gradient + at, room.first, o.source + at, room.second, room.third, end - begin, room.channels,
   o.destination + at);
}

}  // namespace millrace::kernels
#endif
