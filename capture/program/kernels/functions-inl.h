// Element-wise functions, in one text for cores and GPUs: FUNCTION(enumerator, name, LibTorch's
// operator, its operands, its parameters, formula) of the operands x and y and the parameters a, b,
// c, in the operator's order. In gradients x is the gradient of the result, and y the input or, for
// relu, sigmoid, tanh and elu_result, the result. An operator of which only some calls are the
// function is null: operations/map.cpp has its rule.
//
// No guard: included once for each use of FUNCTION. With FORMULA (function specifiers), it has the
// functions that formulas share, and FUNCTION defines Mapped; the including scope defines, for
// Numbers with the usual operators,
// - where(condition, yes, no), constant(double), size_of, times_plus (a * b + c), minus_times
//   (c - a * b), both rounded once;
// - sigmoid_of, tanh_of, erf_of, root_of, exp_below and expm1_below (of numbers up to 0), log1p_of
//   (of numbers from 0 to 1), all with NaN for NaN.

#ifdef FORMULA
FORMULA Number least_of(Number x, Number most) {  // NaN stays NaN
  return where(x > most, most, x);
}
FORMULA Number clamped(Number x, Number least, Number most) {
  return least_of(where(x < least, least, x), most);
}
/// Zero where y <= least or y >= most.
FORMULA Number between(Number gradient, Number y, Number least, Number most) {
  return where(y <= least, constant(0), where(y >= most, constant(0), gradient));
}
FORMULA Number silu_slope(Number x) {
  const Number s = sigmoid_of(x);
  return s * times_plus(x, constant(1) - s, constant(1));
}
/// The standard normal CDF.
FORMULA Number below(Number x) {
  return times_plus(constant(0.5), erf_of(x * constant(0.70710678f)), constant(0.5));
}
FORMULA Number gelu_slope(Number x) {
  const Number density = constant(0.39894228f) * exp_below(constant(-0.5) * (x * x));
  return times_plus(x, density, below(x));
}
constexpr float kGelu = 0.79788456f, kCubic = 0.044715f;  // sqrt(2 / pi); Hendrycks and Gimpel
FORMULA Number gelu_tanh_at(Number x) {
  return tanh_of(constant(kGelu) * x * times_plus(constant(kCubic), x * x, constant(1)));
}
FORMULA Number gelu_tanh_slope(Number x) {
  const Number t = gelu_tanh_at(x), half = constant(0.5);
  const Number inner = times_plus(constant(3 * kCubic * kGelu), x * x, constant(kGelu));
  const Number slope = minus_times(t, t, constant(1)) * inner;
  return times_plus(half * x, slope, times_plus(half, t, half));
}
FORMULA Number hard_sigmoid_of(Number x) {
  return clamped(x + constant(3), constant(0), constant(6)) * constant(1.0f / 6);
}
FORMULA Number hard_swish_slope(Number gradient, Number x) {
  const Number middle = gradient * times_plus(x, constant(1.0f / 3), constant(0.5));
  return where(x <= constant(-3), constant(0), where(x >= constant(3), gradient, middle));
}
FORMULA Number elu_of(Number x, Number alpha, Number scale, Number input_scale) {
  const Number low = expm1_below(least_of(x * input_scale, constant(0)));
  return where(x <= constant(0), low * (alpha * scale), x * scale);
}
FORMULA Number elu_slope(Number x, Number alpha, Number scale, Number input_scale) {
  const Number low = exp_below(least_of(x * input_scale, constant(0)));
  return where(x > constant(0), scale, low * (alpha * scale * input_scale));
}
FORMULA Number softplus_of(Number x) {
  return where(x > constant(0), x, constant(0)) + log1p_of(exp_below(constant(-0.0) - size_of(x)));
}
FORMULA Number mish_slope(Number x) {
  const Number t = tanh_of(softplus_of(x));
  return times_plus(x * sigmoid_of(x), minus_times(t, t, constant(1)), t);
}
/// The function of x and y with the map's parameters a, b, c.
template <Function kFunction>
struct Mapped;
#define FUNCTION(enumerator, name, aten, operands, parameters, ...)              \
  template <>                                                                    \
  struct Mapped<Function::enumerator> {                                          \
    FORMULA static Number of(Number x, Number y, Number a, Number b, Number c) { \
      return __VA_ARGS__;                                                        \
    }                                                                            \
  };
#endif

// The formatter takes products for pointers.
// clang-format off
FUNCTION(copy, "copy", nullptr, 1, 0, x)
FUNCTION(add, "add", nullptr, 2, 0, x + y)
FUNCTION(add_scaled, "add scaled", nullptr, 2, 1, times_plus(y, a, x))
FUNCTION(subtract, "subtract", nullptr, 2, 0, x - y)
FUNCTION(multiply, "multiply", "aten::mul", 2, 0, x * y)
FUNCTION(divide, "divide", nullptr, 2, 0, x / y)
FUNCTION(negate, "negate", "aten::neg", 1, 0, constant(-0.0) - x)
FUNCTION(absolute, "absolute", "aten::abs", 1, 0, size_of(x))
FUNCTION(sign, "sign", "aten::sgn", 1, 0,
         where(x > constant(0), constant(1), where(x < constant(0), constant(-1), x)))
FUNCTION(relu, "relu", "aten::relu", 1, 0, where(x < constant(0), constant(0), x))
FUNCTION(relu_gradient, "relu gradient", nullptr, 2, 0, where(y <= constant(0), constant(0), x))
FUNCTION(sigmoid, "sigmoid", "aten::sigmoid", 1, 0, sigmoid_of(x))
FUNCTION(sigmoid_gradient, "sigmoid gradient", "aten::sigmoid_backward", 2, 0, x * (constant(1) - y) * y)
FUNCTION(tanh, "tanh", "aten::tanh", 1, 0, tanh_of(x))
FUNCTION(tanh_gradient, "tanh gradient", "aten::tanh_backward", 2, 0, x * minus_times(y, y, constant(1)))
FUNCTION(silu, "silu", "aten::silu", 1, 0, x * sigmoid_of(x))
FUNCTION(silu_gradient, "silu gradient", "aten::silu_backward", 2, 0, x * silu_slope(y))
FUNCTION(gelu, "gelu", nullptr, 1, 0, x * below(x))
FUNCTION(gelu_gradient, "gelu gradient", nullptr, 2, 0, x * gelu_slope(y))
FUNCTION(gelu_tanh, "gelu by tanh", nullptr, 1, 0,
         times_plus(constant(0.5) * x, gelu_tanh_at(x), constant(0.5) * x))
FUNCTION(gelu_tanh_gradient, "gelu by tanh gradient", nullptr, 2, 0, x * gelu_tanh_slope(y))
FUNCTION(hard_sigmoid, "hard sigmoid", "aten::hardsigmoid", 1, 0, hard_sigmoid_of(x))
FUNCTION(hard_sigmoid_gradient, "hard sigmoid gradient", "aten::hardsigmoid_backward", 2, 0,
         between(x, y, constant(-3), constant(3)) * constant(1.0f / 6))
FUNCTION(hard_swish, "hard swish", "aten::hardswish", 1, 0, x * hard_sigmoid_of(x))
FUNCTION(hard_swish_gradient, "hard swish gradient", "aten::hardswish_backward", 2, 0, hard_swish_slope(x, y))
FUNCTION(clamp, "clamp", "aten::hardtanh", 1, 2, clamped(x, a, b))
FUNCTION(clamp_gradient, "clamp gradient", "aten::hardtanh_backward", 2, 2, between(x, y, a, b))
FUNCTION(leaky_relu, "leaky relu", "aten::leaky_relu", 1, 1, where(x > constant(0), x, x * a))
FUNCTION(leaky_relu_gradient, "leaky relu gradient", "aten::leaky_relu_backward", 2, 1,
         where(y > constant(0), x, x * a))
FUNCTION(elu, "elu", "aten::elu", 1, 3, elu_of(x, a, b, c))
FUNCTION(elu_gradient, "elu gradient", nullptr, 2, 3, x * elu_slope(y, a, b, c))
FUNCTION(elu_result_gradient, "elu gradient", nullptr, 2, 3,
         x * where(y > constant(0), b, c * (y + a * b)))
FUNCTION(softplus, "softplus", "aten::softplus", 1, 2, where(x * a > b, x, softplus_of(x * a) / a))
FUNCTION(softplus_gradient, "softplus gradient", "aten::softplus_backward", 2, 2,
         where(y * a > b, x, x * sigmoid_of(y * a)))
FUNCTION(mish, "mish", "aten::mish", 1, 0, x * tanh_of(softplus_of(x)))
FUNCTION(mish_gradient, "mish gradient", "aten::mish_backward", 2, 0, x * mish_slope(y))
FUNCTION(prelu, "prelu", "aten::_prelu_kernel", 2, 0, where(x > constant(0), x, x * y))
FUNCTION(square_root, "square root", nullptr, 1, 0, root_of(x))
// clang-format on
#undef FUNCTION
#undef FORMULA
