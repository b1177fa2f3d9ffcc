#include <algorithm>

#include "capture/program/kernels/internal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "capture/program/kernels/map.cpp"
#include <hwy/foreach_target.h>

#include "capture/program/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace millrace::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE V of(float value) {
  return hn::Set(D(), value);
}
HWY_INLINE V least_of(V v, V most) {  // Min and Max treat NaN as the processor does
  return hn::IfThenElse(hn::Gt(v, most), most, v);
}
HWY_INLINE V most_of(V v, V least) {
  return hn::IfThenElse(hn::Lt(v, least), least, v);
}
HWY_INLINE V tanh_of(V v) {
  return hn::IfThenElse(hn::IsNaN(v), v, hn::Tanh(D(), least_of(most_of(v, of(-20)), of(20))));
}

/// erf(x) = x P(x^2) / Q(x^2), fitted for least relative error in +-3.95, beyond which it is 1 to
/// half a float ulp. Error 4e-7 with float rounding.
HWY_INLINE V erf_of(V v) {
  const V x = least_of(most_of(v, of(-3.95f)), of(3.95f)), z = x * x;
  constexpr float kP[] = {2.02585612e-06f, 0.000284666601f, 0.00380766857f,
                          0.0528738918f,   0.191540271f,    1.12837914f};
  constexpr float kQ[] = {3.78301505e-05f, 0.00117058739f, 0.0150541102f,
                          0.114555269f,    0.503080824f,   1};
  V p = of(kP[0]), q = of(kQ[0]);
  for (int i = 1; i < 6; ++i) {
    p = hn::MulAdd(p, z, of(kP[i]));
    q = hn::MulAdd(q, z, of(kQ[i]));
  }
  return least_of(most_of(x * p / q, of(-1)), of(1));
}

/// The standard normal CDF.
HWY_INLINE V below(V v) {
  return hn::MulAdd(of(0.5f), erf_of(v * of(0.70710678f)), of(0.5f));
}

constexpr float kGelu = 0.79788456f, kCubic = 0.044715f;  // sqrt(2 / pi); Hendrycks and Gimpel
HWY_INLINE V gelu_tanh_at(V x) {
  return tanh_of(of(kGelu) * x * hn::MulAdd(of(kCubic), x * x, of(1)));
}

HWY_INLINE V hard_sigmoid_of(V x) {
  return least_of(most_of(x + of(3), of(0)), of(6)) * of(1.0f / 6);
}

/// Zero where x <= least or x >= most.
HWY_INLINE V between(V gradient, V x, V least, V most) {
  return hn::IfThenZeroElse(hn::Or(hn::Le(x, least), hn::Ge(x, most)), gradient);
}

/// Calls action(name, f), where f(left, right) is the map's function on vectors.
template <class Action>
void with(const Map& m, const Action& action) {
  const float a = m.numbers[0], b = m.numbers[1], c = m.numbers[2];
  const auto where_positive = [](V x, V yes, V no)
                                  HWY_ATTR { return hn::IfThenElse(hn::Gt(x, of(0)), yes, no); };
  switch (m.function) {
    case Function::add:
      return action("add", [](V x, V y) HWY_ATTR { return x + y; });
    case Function::subtract:
      return action("subtract", [](V x, V y) HWY_ATTR { return x - y; });
    case Function::multiply:
      return action("multiply", [](V x, V y) HWY_ATTR { return x * y; });
    case Function::divide:
      return action("divide", [](V x, V y) HWY_ATTR { return x / y; });
    case Function::negate:
      return action("negate", [](V x, V) HWY_ATTR { return hn::Neg(x); });
    case Function::absolute:
      return action("absolute", [](V x, V) HWY_ATTR { return hn::Abs(x); });
    case Function::sign:
      return action("sign", [=](V x, V) HWY_ATTR {
        const V negative = hn::IfThenElse(hn::Lt(x, of(0)), of(-1), x);  // keeps 0 and NaN
        return where_positive(x, of(1), negative);
      });
    case Function::relu:
      return action("relu", [](V x, V) HWY_ATTR { return relu_of(x); });
    case Function::relu_gradient:
      return action("relu gradient",
                    [](V dy, V y) HWY_ATTR { return hn::IfThenZeroElse(hn::Le(y, of(0)), dy); });
    case Function::sigmoid:
      return action("sigmoid", [](V x, V) HWY_ATTR { return sigmoid_of(x); });
    case Function::sigmoid_gradient:
      return action("sigmoid gradient",
                    [](V dy, V y) HWY_ATTR { return sigmoid_gradient_of(dy, y); });
    case Function::tanh:
      return action("tanh", [](V x, V) HWY_ATTR { return tanh_of(x); });
    case Function::tanh_gradient:
      return action("tanh gradient",
                    [](V dy, V y) HWY_ATTR { return dy * hn::NegMulAdd(y, y, of(1)); });
    case Function::silu:
      return action("silu", [](V x, V) HWY_ATTR { return x * sigmoid_of(x); });
    case Function::silu_gradient:
      return action("silu gradient", [](V dy, V x) HWY_ATTR {
        const V s = sigmoid_of(x);
        return dy * (s * hn::MulAdd(x, of(1) - s, of(1)));
      });
    case Function::gelu:
      return action("gelu", [](V x, V) HWY_ATTR { return x * below(x); });
    case Function::gelu_gradient:
      return action("gelu gradient", [](V dy, V x) HWY_ATTR {
        const V density = of(0.39894228f) * exp_below(of(-0.5f) * (x * x));
        return dy * hn::MulAdd(x, density, below(x));
      });
    case Function::gelu_tanh:
      return action("gelu by tanh", [](V x, V) HWY_ATTR {
        const V half = of(0.5f) * x;
        return hn::MulAdd(half, gelu_tanh_at(x), half);
      });
    case Function::gelu_tanh_gradient:
      return action("gelu by tanh gradient", [](V dy, V x) HWY_ATTR {
        const V t = gelu_tanh_at(x), half = of(0.5f);
        const V inner = hn::MulAdd(of(3 * kCubic * kGelu), x * x, of(kGelu));
        const V slope = hn::NegMulAdd(t, t, of(1)) * inner;
        return dy * hn::MulAdd(half * x, slope, hn::MulAdd(half, t, half));
      });
    case Function::hard_sigmoid:
      return action("hard sigmoid", [](V x, V) HWY_ATTR { return hard_sigmoid_of(x); });
    case Function::hard_sigmoid_gradient:
      return action("hard sigmoid gradient", [](V dy, V x) HWY_ATTR {
        return between(dy, x, of(-3), of(3)) * of(1.0f / 6);
      });
    case Function::hard_swish:
      return action("hard swish", [](V x, V) HWY_ATTR { return x * hard_sigmoid_of(x); });
    case Function::hard_swish_gradient:
      return action("hard swish gradient", [](V dy, V x) HWY_ATTR {
        const V middle = dy * hn::MulAdd(x, of(1.0f / 3), of(0.5f));
        const V upper = hn::IfThenElse(hn::Ge(x, of(3)), dy, middle);
        return hn::IfThenZeroElse(hn::Le(x, of(-3)), upper);
      });
    case Function::clamp:
      return action("clamp", [=](V x, V) HWY_ATTR { return least_of(most_of(x, of(a)), of(b)); });
    case Function::clamp_gradient:
      return action("clamp gradient",
                    [=](V dy, V x) HWY_ATTR { return between(dy, x, of(a), of(b)); });
    case Function::leaky_relu:
      return action("leaky relu", [=](V x, V) HWY_ATTR { return where_positive(x, x, x * of(a)); });
    case Function::leaky_relu_gradient:
      return action("leaky relu gradient",
                    [=](V dy, V x) HWY_ATTR { return where_positive(x, dy, dy * of(a)); });
    case Function::elu:
      return action("elu", [=](V x, V) HWY_ATTR {
        const V low = hn::Expm1(D(), most_of(least_of(x * of(c), of(0)), of(-104)));
        return hn::IfThenElse(hn::Le(x, of(0)), low * of(a * b), x * of(b));
      });
    case Function::elu_gradient:
      return action("elu gradient", [=](V dy, V x) HWY_ATTR {
        const V slope = exp_below(least_of(x * of(c), of(0))) * of(a * b * c);
        return dy * where_positive(x, of(b), slope);
      });
    case Function::elu_result_gradient:
      return action("elu gradient", [=](V dy, V y) HWY_ATTR {
        return dy * where_positive(y, of(b), of(c) * (y + of(a * b)));
      });
  }
}

/// A row of `count` elements, often few, for which each_vector() is slower.
template <bool kEachLeft, bool kEachRight, class F>
HWY_INLINE void map_row(const F& f, const float* left, const float* right, float* made,
                        std::size_t count) {
  const D d;
  const V one_left = kEachLeft ? hn::Zero(d) : of(*left);
  const V one_right = kEachRight ? hn::Zero(d) : of(*right);
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
  with(m, [&](const char*, const auto& f) HWY_ATTR {
    for (std::size_t r = 0; r < m.rows; ++r) {
      if (m.left.each && m.right.each) map_row<true, true>(f, left, right, made, m.row);
      if (m.left.each && !m.right.each) map_row<true, false>(f, left, right, made, m.row);
      if (!m.left.each && m.right.each) map_row<false, true>(f, left, right, made, m.row);
      if (!m.left.each && !m.right.each) map_row<false, false>(f, left, right, made, m.row);
      left += m.left.row;
      right += m.right.row;
      made += m.row;
    }
  });
}

const char* name_of(Function function) {
  const char* found = nullptr;
  with({.function = function}, [&](const char* name, const auto&) { found = name; });
  return found;
}

}  // namespace HWY_NAMESPACE
}  // namespace millrace::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace millrace::kernels {

HWY_EXPORT(map_rows);
HWY_EXPORT(name_of);

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
  return HWY_DYNAMIC_DISPATCH(name_of)(function);
}

}  // namespace millrace::kernels
#endif
