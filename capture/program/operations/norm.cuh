// Norms of groups of elements and their gradients: group and instance norm, layer norm, batch norm
// with given statistics. A block computes a slice of a group; if a group has several, an earlier
// launch leaves what each slice or channel contributes to the group's sums.
#pragma once

#include "capture/program/operations/channel_sums.cuh"

namespace millrace::gpu {

enum class Norm {
  whole,     ///< a block has a whole group and measures it
  in_parts,  ///< partial sums of slices or channels are given
  frozen,    ///< mean and variance are given
};

/// Elements [begin, end) of a group of `size`: slice `index` of `slices`, which begin at fours.
struct Slice {
  int group, index, begin, end;
  DEVICE Slice(int size, int slices) : group(block() / slices), index(block() % slices) {
    const int each = rounded_up(divided_up(size, slices), 4);
    begin = index * each < size ? index * each : size;
    end = begin + each < size ? begin + each : size;
  }
  DEVICE int count() const { return end - begin; }
};

/// Calls work(i) for the thread's share of [begin, end), `kFloats` elements at a time.
template <int kFloats, int kThreads, class Work>
DEVICE void each_of(int begin, int end, const Work& work) {
  for (int i = begin + thread() * kFloats; i < end; i += kThreads * kFloats) work(i);
}

template <int kFloats, int kThreads>
DEVICE NormPart moments(const float* x, int count) {
  if (count == 0) return {0, 0};
  const float first = *x;
  float sum = 0, squares = 0;
  each_of<kFloats, kThreads>(0, count, [&](int i) {
    float v[kFloats];
    load<kFloats>(v, x + i);
    for (int k = 0; k < kFloats; ++k) sum += v[k] - first;
  });
  const double mean = first + sum_of_block<kThreads>(sum) / count;
  const float about = float(mean);
  each_of<kFloats, kThreads>(0, count, [&](int i) {
    float v[kFloats];
    load<kFloats>(v, x + i);
    for (int k = 0; k < kFloats; ++k) squares = fmaf(v[k] - about, v[k] - about, squares);
  });
  const double off = mean - double(about), all = sum_of_block<kThreads>(squares);
  return {mean, all - off * off * count};
}

template <int kFloats, int kThreads>
KERNEL(kThreads)
norm_parts(BY_VALUE NormArguments n) {
  start();
  const Slice slice(n.size, n.slices);
  const NormPart part = moments<kFloats, kThreads>(
      n.source + (long long)(slice.group) * n.size + slice.begin, slice.count());
  if (thread() == 0) n.parts[block()] = part;
}

DEVICE NormPart moments_of_parts(const NormArguments& n, int group) {
  const NormPart* const parts = n.parts + group * n.slices;
  const int each = rounded_up(divided_up(n.size, n.slices), 4);
  double sum = 0, squares = 0;
  const auto count = [&](int s) {
    const int left = n.size - s * each;
    return double(left < 0 ? 0 : left < each ? left : each);
  };
  for (int s = 0; s < n.slices; ++s) sum += count(s) * parts[s].sum;
  const double mean = sum / n.size;
  for (int s = 0; s < n.slices; ++s) {
    const double off = parts[s].sum - mean;
    squares += parts[s].product + count(s) * off * off;
  }
  return {mean, squares};
}

template <Norm kHow>
DEVICE float rstd_of(const NormArguments& n, int group) {
  return kHow == Norm::frozen ? float(1 / sqrt(double(n.rstd[group]) + n.eps)) : n.rstd[group];
}

/// to = (x - mean) * rstd * weight + bias.
template <Norm kHow, int kFloats, int kThreads>
KERNEL(kThreads)
norm(BY_VALUE NormArguments n) {
  start();
  const Slice slice(n.size, n.slices);
  const long long first = (long long)(slice.group) * n.size;
  float mean, rstd;
  if constexpr (kHow == Norm::frozen) {
    mean = n.mean[slice.group];
    rstd = rstd_of<kHow>(n, slice.group);
  } else {
    const NormPart of = kHow == Norm::whole ? moments<kFloats, kThreads>(n.source + first, n.size)
                                            : moments_of_parts(n, slice.group);
    mean = float(of.sum);
    rstd = float(1 / sqrt(of.product / n.size + n.eps));
    if (slice.index == 0 && thread() == 0) {
      n.mean[slice.group] = mean;
      n.rstd[slice.group] = rstd;
    }
  }
  each_of<kFloats, kThreads>(slice.begin, slice.end, [&](int i) {
    const int c = slice.group * n.weights + i / n.pixels;
    const float scale = n.weight ? rstd * n.weight[c] : rstd, bias = n.bias ? n.bias[c] : 0;
    float v[kFloats];
    load<kFloats>(v, n.source + first + i);
    for (int k = 0; k < kFloats; ++k) v[k] = fmaf(v[k] - mean, scale, bias);
    store<kFloats>(n.destination + first + i, v);
  });
}

/// Over a slice of a channel: the sums of dy and of dy * (x - mean).
template <int kFloats, int kThreads>
KERNEL(kThreads)
norm_gradient_parts(BY_VALUE NormArguments n) {
  start();
  const Slice slice(n.pixels, n.slices);
  const int channel = slice.group;
  const long long first = (long long)(channel)*n.pixels;
  const float mean = n.mean[channel / n.weights];
  float sum = 0, product = 0;
  each_of<kFloats, kThreads>(slice.begin, slice.end, [&](int i) {
    float g[kFloats], v[kFloats];
    load<kFloats>(g, n.gradient + first + i);
    load<kFloats>(v, n.source + first + i);
    for (int k = 0; k < kFloats; ++k) {
      sum += g[k];
      product = fmaf(g[k], v[k] - mean, product);
    }
  });
  const NormPart part = {sum_of_block<kThreads>(sum), sum_of_block<kThreads>(product)};
  if (thread() == 0) n.parts[block()] = part;
}

/// The sums over a group's gradients, each times its weight.
template <Norm kHow, int kThreads>
DEVICE NormPart gradient_sums(const NormArguments& n, int group, float mean) {
  double sum = 0, product = 0;
  if constexpr (kHow == Norm::whole) {
    const float *const dy = n.gradient + (long long)(group)*n.size, *const x =
                                                                        n.source +
                                                                        (long long)(group)*n.size;
    float sums = 0, products = 0;
    each_of<1, kThreads>(0, n.size, [&](int i) {
      const float g = n.weight ? dy[i] * n.weight[group * n.weights + i / n.pixels] : dy[i];
      sums += g;
      products = fmaf(g, x[i] - mean, products);
    });
    sum = sums;
    product = products;
  } else {
    const int parts = n.weights * n.slices;
    for (int i = thread(); i < parts; i += kThreads) {
      const double w = n.weight ? double(n.weight[group * n.weights + i / n.slices]) : 1;
      sum += w * n.parts[group * parts + i].sum;
      product += w * n.parts[group * parts + i].product;
    }
  }
  return {sum_of_block<kThreads>(sum), sum_of_block<kThreads>(product)};
}

template <int kThreads>
DEVICE void weight_gradients_of_parts(const NormArguments& n, int group, float rstd) {
  for (int i = thread(); i < n.weights; i += kThreads) {
    const int c = group * n.weights + i;
    double sum = 0, product = 0;
    for (int s = 0; s < n.slices; ++s) {
      sum += n.parts[c * n.slices + s].sum;
      product += n.parts[c * n.slices + s].product;
    }
    if (n.weight_gradient) n.weight_gradient[c] = float(product * rstd);
    if (n.bias_gradient) n.bias_gradient[c] = float(sum);
  }
}

/// With g = dy * weight and h = (x - mean) * rstd: rstd * (g - mean of g - h * mean of g * h).
/// `n.slices` per channel; a group has as many as its channels together.
template <Norm kHow, int kFloats, int kThreads>
KERNEL(kThreads)
norm_gradient(BY_VALUE NormArguments n) {
  start();
  const Slice slice(n.size, kHow == Norm::whole ? 1 : n.weights * n.slices);
  const long long first = (long long)(slice.group) * n.size;
  const float mean = n.mean[slice.group], rstd = rstd_of<kHow>(n, slice.group);
  float shift = 0, slope = 0;
  if constexpr (kHow != Norm::frozen) {
    const NormPart sums = gradient_sums<kHow, kThreads>(n, slice.group, mean);
    shift = float(rstd * sums.sum / n.size);
    slope = float(double(rstd) * rstd * rstd * sums.product / n.size);
  }
  if (kHow != Norm::whole && slice.index == 0)
    weight_gradients_of_parts<kThreads>(n, slice.group, rstd);
  if (!n.destination) return;
  each_of<kFloats, kThreads>(slice.begin, slice.end, [&](int i) {
    const int c = slice.group * n.weights + i / n.pixels;
    const float scale = n.weight ? rstd * n.weight[c] : rstd;
    float g[kFloats], v[kFloats];
    load<kFloats>(g, n.gradient + first + i);
    load<kFloats>(v, n.source + first + i);
    for (int k = 0; k < kFloats; ++k)
      g[k] =
          kHow == Norm::frozen ? g[k] * scale : fmaf(mean - v[k], slope, fmaf(g[k], scale, -shift));
    store<kFloats>(n.destination + first + i, g);
  });
}

KERNEL(kSumThreads) layer_norm_weight_gradients(BY_VALUE NormArguments n) {
  start();
  const float product = column_sum(n.groups, n.size, [&](int r, int i) {
    return n.gradient[i] * ((n.source[i] - n.mean[r]) * n.rstd[r]);
  });
  const float sum = column_sum(n.groups, n.size, [&](int, int i) { return n.gradient[i]; });
  const int column = block() * kColumns + thread();
  if (thread() >= kColumns || column >= n.size) return;
  if (n.weight_gradient) n.weight_gradient[column] = product;
  if (n.bias_gradient) n.bias_gradient[column] = sum;
}

}  // namespace millrace::gpu
