#include <algorithm>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/map.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

template <class Condition>
HWY_INLINE V where(Condition condition, V yes, V no) {
  return hn::IfThenElse(condition, yes, no);
}
HWY_INLINE V minus_times(V a, V b, V c) {
  return hn::NegMulAdd(a, b, c);
}
HWY_INLINE V within(V v, float most) {  // Min and Max treat NaN as the processor does
  const V least = constant(-most), limit = constant(most);
  v = hn::IfThenElse(hn::Lt(v, least), least, v);
  return hn::IfThenElse(hn::Gt(v, limit), limit, v);
}
HWY_INLINE V tanh_of(V v) {
  return hn::IfThenElse(hn::IsNaN(v), v, hn::Tanh(D(), within(v, 20)));
}
HWY_INLINE V expm1_below(V v) {
  return hn::Expm1(D(), within(v, 104));
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
HWY_INLINE void map_row(const F&, const Map& m, const float* left, const float* right, float* made,
                        std::size_t count) {
  const D d;
  const V a = hn::Set(d, m.numbers[0]), b = hn::Set(d, m.numbers[1]), c = hn::Set(d, m.numbers[2]);
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

void map_rows(const Map& m, const float* left, const float* right, float* made) {
  with(m.function, [&](const auto& f) HWY_ATTR {
    for (std::size_t r = 0; r < m.rows; ++r) {
      if (m.left.each && m.right.each) map_row<true, true>(f, m, left, right, made, m.row);
      if (m.left.each && !m.right.each) map_row<true, false>(f, m, left, right, made, m.row);
      if (!m.left.each && m.right.each) map_row<false, true>(f, m, left, right, made, m.row);
      if (!m.left.each && !m.right.each) map_row<false, false>(f, m, left, right, made, m.row);
      left += m.left.row;
      right += m.right.row;
      made += m.row;
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(map_rows);

void map(const Map& all, const float* left, const float* right, float* made, Share share) {
  Map part = all;
  if (!right) {  // unary
    right = left;
    part.right = part.left;
  }
  const bool one_row = all.rows == 1;
  const auto [begin, end] = one_row ? share.of(all.row, 16) : share.of(all.rows);
  (one_row ? part.row : part.rows) = end - begin;
  const auto first = [&, begin = begin](const Operand& operand) {
    return begin * (one_row ? std::size_t(operand.each) : operand.row);
  };
  HWY_DYNAMIC_DISPATCH(map_rows)
  (part, left + first(part.left), right + first(part.right),
   made + begin * (one_row ? 1 : all.row));
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
