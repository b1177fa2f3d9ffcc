// Depthwise convolutions: windows over each channel alone, vectors along the channels. Several sums
// grow at a time, since each addition to one waits for the last.
#include <algorithm>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/depthwise.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels::HWY_NAMESPACE {

/// Channels in the vector from `channel` on.
std::size_t count_from(const Depthwise& d, std::size_t channel) {
  return std::min(kLanes, std::size_t(d.convolution.input.channels) - channel);
}

constexpr int kMostPixels = 8;  ///< summed at a time

/// Adds a row of the kernel to the sums of adjacent pixels, whose taps are adjacent, too: each
/// source pixel is loaded once.
template <int kTaps, int kPixels>
HWY_INLINE void add_adjacent(const float* weights, const DepthwiseSide& columns, const auto& e,
                             const float* at, std::size_t step, V (&sums)[kPixels]) {
  V weight[kTaps];
#pragma GCC unroll 8
  for (int t = 0; t < kTaps; ++t)
    weight[t] = hn::LoadU(D(), weights + std::size_t(columns.taps[t].index) * kLanes);
#pragma GCC unroll 16
  for (int u = 0; u < kPixels + kTaps - 1; ++u, at += step) {
    const V source = e.load(at);
#pragma GCC unroll 8
    for (int t = 0; t < kTaps; ++t) {
      if (u >= t && u - t < kPixels) sums[u - t] = hn::MulAdd(source, weight[t], sums[u - t]);
    }
  }
}

/// kPixels results of row y from x on; if several, all their taps are inside. kTaps: of a row of
/// the kernel, if adjacent; else 0.
template <int kPixels, int kTaps>
HWY_INLINE void make_pixels(const Depthwise& d, const Operands& o, const DepthwiseSide& rows, int y,
                            const DepthwiseSide& columns, int x, const auto& e) {
  const Layout &from = source_of(d.convolution), &to = made_by(d.convolution);
  const std::size_t step = std::size_t(from.channels), pace = std::size_t(columns.pace) * step;
  const V bias = o.bias ? e.load(o.bias) : hn::Zero(D());
  V sums[kPixels];
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) sums[p] = bias;
  for (const DepthwiseSide::Tap& down : rows.taps) {
    if (!down.meets(y)) continue;
    const float* const row = o.source + std::size_t(down.from + rows.pace * y) * from.row();
    const float* const weights = o.scratch + std::size_t(down.index * d.row_taps) * kLanes;
    const auto source = [&](const DepthwiseSide::Tap& right) {
      return row + std::size_t(right.from + columns.pace * x) * step;
    };
    if constexpr (kTaps > 0) {
      add_adjacent<kTaps>(weights, columns, e, source(columns.taps[0]), step, sums);
      continue;
    }
    for (const DepthwiseSide::Tap& right : columns.taps) {
      if (kPixels == 1 && !right.meets(x)) continue;
      const V weight = hn::LoadU(D(), weights + std::size_t(right.index) * kLanes);
      const float* const at = source(right);
#pragma GCC unroll 8
      for (int p = 0; p < kPixels; ++p)
        sums[p] = hn::MulAdd(e.load(at + p * pace), weight, sums[p]);
    }
  }
  std::size_t place = std::size_t(rows.to + rows.to_step * y) * to.row() +
                      std::size_t(columns.to + columns.to_step * x) * step;
#pragma GCC unroll 8
  for (int p = 0; p < kPixels; ++p) {
    V made = activated(sums[p], d.convolution.activation);
    if (o.mask) made = masked(made, e.load(o.mask + place));
    e.store(o.made + place, made);
    place += std::size_t(columns.to_step) * step;
  }
}

template <int kPixels, int kTaps>
HWY_INLINE void make_rows(const Depthwise& d, const Operands& o, const DepthwiseSide& rows,
                          const DepthwiseSide& columns, const auto& e) {
  for (int y = 0; y < rows.size; ++y) {
    for (int x = 0; x < columns.size;) {
      if (x < columns.begin || x >= columns.end) {
        make_pixels<1, 0>(d, o, rows, y, columns, x++, e);
      } else {  // the last ones may be computed twice
        x = std::min(x, columns.end - kPixels);
        make_pixels<kPixels, kTaps>(d, o, rows, y, columns, x, e);
        x += kPixels;
      }
    }
  }
}

/// The gradients of taps [first, first + kTaps) of the kernel's row `down`.
template <int kTaps>
HWY_INLINE void make_taps(const Depthwise& d, const Operands& o, const DepthwiseSide::Tap& down,
                          int first, const auto& e) {
  const Convolution& c = d.convolution;
  const DepthwiseSide &rows = d.rows[0], &columns = d.columns[0];
  const DepthwiseSide::Tap* const taps = columns.taps.data() + first;
  const std::size_t step = std::size_t(c.input.channels);
  int begin = 0, end = columns.size;  // where all of them are inside
  for (int t = 0; t < kTaps; ++t) {
    begin = std::max(begin, taps[t].first);
    end = std::min(end, taps[t].last);
  }
  end = std::max(begin, end);
  V total[1][kTaps];
  clear(total);
  for (int y = down.first; y < down.last; ++y) {
    const float* const dy = o.source + std::size_t(y) * c.output.row();
    const float* const row = o.x + std::size_t(down.from + rows.pace * y) * c.input.row();
    V sums[2][kTaps];  // of every other pixel
    clear(sums);
    const auto add = [&](V(&to)[kTaps], int t, int x, V gradient) HWY_ATTR {
      const float* const from = row + std::ptrdiff_t(taps[t].from + columns.pace * x) * step;
      to[t] = hn::MulAdd(gradient, e.load(from), to[t]);
    };
    const auto add_all = [&](V(&to)[kTaps], int x) HWY_ATTR {
      const V gradient = e.load(dy + x * step);
#pragma GCC unroll 8
      for (int t = 0; t < kTaps; ++t) add(to, t, x, gradient);
    };
    int x = begin;
    for (; x + 1 < end; x += 2) {
      add_all(sums[0], x);
      add_all(sums[1], x + 1);
    }
    if (x < end) add_all(sums[0], x);
#pragma GCC unroll 8
    for (int t = 0; t < kTaps; ++t) {
      for (int x = taps[t].first; x < std::min(begin, taps[t].last); ++x)
        add(sums[0], t, x, e.load(dy + x * step));
      for (int x = std::max(end, taps[t].first); x < taps[t].last; ++x)
        add(sums[1], t, x, e.load(dy + x * step));
      total[0][t] = hn::Add(total[0][t], hn::Add(sums[0][t], sums[1][t]));
    }
  }
  HWY_ALIGN float packed[kTaps * kLanes];
  for (int t = 0; t < kTaps; ++t) hn::Store(total[0][t], D(), packed + t * kLanes);
  const std::size_t all = d.places.size();
  from_lanes(packed, std::span(d.places).first(kTaps),
             o.made + e.at * all + std::size_t(down.index * d.row_taps + first), all,
             count_from(d, e.at), c.accumulate);
}

HWY_INLINE void make_image(const Depthwise& d, const Operands& o, const auto& e) {
  const std::size_t all = d.places.size();
  to_lanes(o.weights + e.at * all, all, count_from(d, e.at), d.places, o.scratch);
  for (const DepthwiseSide& rows : d.rows) {
    for (const DepthwiseSide& columns : d.columns) {
      const int inside = columns.end - columns.begin;
      const int taps = columns.adjacent() && inside >= kMostPixels ? int(columns.taps.size()) : 0;
      if (taps == 3) {
        make_rows<kMostPixels, 3>(d, o, rows, columns, e);
      } else if (taps == 5) {
        make_rows<kMostPixels, 5>(d, o, rows, columns, e);
      } else if (taps == 7) {
        make_rows<kMostPixels, 7>(d, o, rows, columns, e);
      } else if (inside >= kMostPixels) {
        make_rows<kMostPixels, 0>(d, o, rows, columns, e);
      } else if (inside >= 4) {
        make_rows<4, 0>(d, o, rows, columns, e);
      } else {
        make_rows<1, 0>(d, o, rows, columns, e);
      }
    }
  }
}

HWY_INLINE void make_weights(const Depthwise& d, const Operands& o, const auto& e) {
  constexpr int kMost = 7;
  for (const DepthwiseSide::Tap& down : d.rows[0].taps) {
    for (int first = 0; first < d.row_taps; first += kMost) {
      with_constant<kMost>(std::min(kMost, d.row_taps - first),
                           [&](auto count) HWY_ATTR { make_taps<count()>(d, o, down, first, e); });
    }
  }
}

/// Of channels [begin, end).
void depthwise(const Depthwise& d, const Operands& o, std::size_t begin, std::size_t end) {
  each_vector(begin, end, [&](const auto& e) HWY_ATTR {
    d.convolution.pass == Pass::kWeightGradient ? make_weights(d, o, e) : make_image(d, o, e);
  });
}

}  // namespace millrace::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(depthwise);

namespace {

DepthwiseSide side_of(const Axis& axis, int sources) {
  DepthwiseSide side{axis};
  side.end = side.size;
  for (int m = 0; m < side.count; ++m) {
    const int from = side.from + side.spread * m;
    const auto bound = [&](int source) {  // the first output whose source is there or later
      return std::clamp(divided_up(std::max(0, source - from), side.pace), 0, side.size);
    };
    const auto& tap =
        side.taps.emplace_back(side.first + side.step * m, from, bound(0), bound(sources));
    side.begin = std::max(side.begin, tap.first);
    side.end = std::min(side.end, tap.last);
  }
  return side;
}

std::vector<DepthwiseSide> sides_of(Pass pass, const Taps& taps, int inputs, int outputs) {
  const bool gradient = pass == Pass::kDataGradient;
  std::vector<DepthwiseSide> sides;
  for (const Axis& axis :
       axes_of(gradient ? pass : Pass::kForward, taps, gradient ? inputs : outputs))
    sides.push_back(side_of(axis, gradient ? outputs : inputs));
  return sides;
}

Depthwise made_of(const Convolution& c) {
  const auto [rows, columns] = window_of(c);
  Depthwise made{.convolution = c,
                 .rows = sides_of(c.pass, rows, c.input.height, c.output.height),
                 .columns = sides_of(c.pass, columns, c.input.width, c.output.width),
                 .row_taps = columns.count};
  for (std::size_t tap = 0; tap < std::size_t(rows.count * columns.count); ++tap)
    made.places.push_back(std::uint32_t(tap * lanes()));
  return made;
}

class DepthwiseKernel final : public Kernel {
 public:
  explicit DepthwiseKernel(const Convolution& c) : depthwise_(made_of(c)) {}
  std::size_t scratch_floats() const override { return depthwise_.places.size() * lanes(); }
  /// Threads share the channels.
  void run(const Operands& operands, int, Share share) const override {
    const Convolution& c = depthwise_.convolution;
    const auto [begin, end] = share.of(std::size_t(c.input.channels), lanes());
    HWY_DYNAMIC_DISPATCH(depthwise)(depthwise_, operands, begin, end);
    bias_gradient(c, operands, share);
  }

 private:
  const Depthwise depthwise_;
};

}  // namespace

std::unique_ptr<Kernel> make_depthwise(const Convolution& convolution) {
  return std::make_unique<DepthwiseKernel>(convolution);
}

}  // namespace millrace::kernels
#endif
