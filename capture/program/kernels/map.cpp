#include <algorithm>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/map.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels::HWY_NAMESPACE {

template <class Condition>
HWY_INLINE V where(Condition condition, V yes, V no) {
  return hn::IfThenElse(condition, yes, no);
}
HWY_INLINE V within(V v, float most) {  // Min and Max treat NaN as the processor does
  const V least = constant(-most), limit = constant(most);
  v = hn::IfThenElse(hn::Lt(v, least), least, v);
  return hn::IfThenElse(hn::Gt(v, limit), limit, v);
}
HWY_INLINE V tanh_of(V v) {
  return hn::IfThenElse(hn::IsNaN(v), v, hn::Tanh(d, within(v, 20)));
}
HWY_INLINE V log1p_of(V v) {
  return hn::IfThenElse(hn::IsNaN(v), v, hn::Log1p(d, v));
}
HWY_INLINE V expm1_below(V v) {
  return hn::Expm1(d, within(v, 104));
}

/// erf(x) = x P(x^2) / Q(x^2), fitted for least relative error in +-3.95, beyond which it is 1 to
/// half a float ulp. Error 4e-7 with float rounding.
HWY_INLINE V erf_of(V v) {
  const V x = within(v, 3.95f), z = x * x;
  constexpr float kP[] = {2.02585612e-06f, 0.000284666601f, 0.00380766857f,
                          0.0528738918f,   0.191540271f,    1.12837914f};
  constexpr float kQ[] = {3.78301505e-05f, 0.00117058739f, 0.0150541102f,
                          0.114555269f,    0.503080824f,   1};
  V p = constant(kP[0]), q = constant(kQ[0]);
  for (int i = 1; i < 6; ++i) {
    p = hn::MulAdd(p, z, constant(kP[i]));
    q = hn::MulAdd(q, z, constant(kQ[i]));
  }
  return within(x * p / q, 1);
}

#define FORMULA HWY_INLINE
#include "capture/program/kernels/functions-inl.h"

/// Calls action(Mapped<function>()).
template <class Action>
void with(Function function, const Action& action) {
  switch (function) {
#define FUNCTION(enumerator, ...) \
  case Function::enumerator:      \
    return action(Mapped<Function::enumerator>());
#include "capture/program/kernels/functions-inl.h"
  }
}

/// A row of `count` elements, often few, for which each_vector() is slower.
template <bool kEachLeft, bool kEachRight, class F>
HWY_INLINE void map_row(const F&, const Map& map, const float* left, const float* right,
                        float* made, std::size_t count) {
  const auto& [a_, b_, c_] = map.numbers;
  const V a = hn::Set(d, a_), b = hn::Set(d, b_), c = hn::Set(d, c_);
  const auto f = [=](V x, V y) HWY_ATTR { return F::of(x, y, a, b, c); };
  const V one_left = kEachLeft ? hn::Zero(d) : hn::Set(d, *left);
  const V one_right = kEachRight ? hn::Zero(d) : hn::Set(d, *right);
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const V x = kEachLeft ? hn::LoadU(d, left + i) : one_left;
    const V y = kEachRight ? hn::LoadU(d, right + i) : one_right;
    hn::StoreU(f(x, y), d, made + i);
  }
  if (i == count) return;
  const auto part = first_lanes(count - i);
  const V x = kEachLeft ? load_part(part, left + i) : one_left;
  const V y = kEachRight ? load_part(part, right + i) : one_right;
  store_part(f(x, y), part, made + i);
}

/// Elements [first, first + count) of rows [begin, end) along the last dimension.
void map_rows(const MapArguments& m, std::size_t begin, std::size_t end, std::size_t first,
              std::size_t count) {
  const int last = m.dimensions - 1;
  const bool each_left = m.left.strides[last] == 1, each_right = m.right.strides[last] == 1;
  with(m.map.function, [&](const auto& f) HWY_ATTR {
    for (std::size_t r = begin; r < end; ++r) {
      std::size_t left = each_left * first, right = each_right * first, made = first, rest = r;
      for (int d = last; d-- > 0; rest /= std::size_t(m.sizes[d])) {
        const std::size_t along = d > 0 ? rest % std::size_t(m.sizes[d]) : rest;
        left += along * std::size_t(m.left.strides[d]);
        right += along * std::size_t(m.right.strides[d]);
        made += along * std::size_t(m.made_strides[d]);
      }
      const float *const x = m.left.at + left, *const y = m.right.at + right;
      float* const to = m.made + made;
      if (each_left && each_right) map_row<true, true>(f, m.map, x, y, to, count);
      if (each_left && !each_right) map_row<true, false>(f, m.map, x, y, to, count);
      if (!each_left && each_right) map_row<false, true>(f, m.map, x, y, to, count);
      if (!each_left && !each_right) map_row<false, false>(f, m.map, x, y, to, count);
    }
  });
}

}  // namespace millrace::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(map_rows);

void map(const MapArguments& given, Share share) {
  MapArguments m = given;
  if (!m.right.at) m.right = m.left;  // unary
  const std::size_t row = std::size_t(m.sizes[m.dimensions - 1]), rows = std::size_t(m.count) / row;
  const auto [begin, end] = rows == 1 ? share.of(row, 16) : share.of(rows);
  const auto map = HWY_DYNAMIC_DISPATCH(map_rows);
  rows == 1 ? map(m, 0, 1, begin, end - begin) : map(m, begin, end, 0, row);
}

void copy(const MapArguments& m) {
  const int last = m.dimensions - 1;
  const int row = m.sizes[last], from = m.left.strides[last], to = m.made_strides[last];
  const float* x = m.left.at;
  float* made = m.made;
  int index[kMostDimensions] = {};
  for (int r = 0; r < m.count / row; ++r) {
    for (int i = 0; i < row; ++i) made[i * to] = x[i * from];
    for (int d = last; d-- > 0;) {
      x += m.left.strides[d];
      made += m.made_strides[d];
      if (++index[d] < m.sizes[d]) break;
      x -= m.left.strides[d] * m.sizes[d];
      made -= m.made_strides[d] * m.sizes[d];
      index[d] = 0;
    }
  }
}

const char* name_of(Function function) {
  static constexpr const char* names[] = {
#define FUNCTION(enumerator, name, ...) name,
#include "capture/program/kernels/functions-inl.h"
  };
  return names[int(function)];
}

}  // namespace millrace::kernels
#endif
