// Softmax of a row, its logarithm and their gradients, for cores and GPUs, written as the formulas
// of kernels/functions-inl.h. `Row` is sum(of(e)), largest() and each(work(e)) over its elements e.
// No guard, since Highway includes it once for each instruction set.

template <class Row>
FORMULA void softmax_row(const Row& row, const RowArguments& r, const float* x, float* to) {
  const float most = row.largest(x);
  const auto power = [&](const auto& e) { return exp_below(e.load(x) - constant(most)); };
  const float sum = row.sum(power), shift = most + logf(sum), factor = 1 / sum;
  row.each([&](const auto& e) {
    e.store(to, r.logarithm ? e.load(x) - constant(shift) : power(e) * constant(factor));
  });
}

/// Softmax y: y * (dy - sum of dy * y). Its logarithm z: dy - exp(z) * sum of dy.
template <class Row>
FORMULA void softmax_gradient_row(const Row& row, const RowArguments& r, const float* dy,
                                  const float* y, float* to) {
  const float sum =
      row.sum([&](const auto& e) { return r.logarithm ? e.load(dy) : e.load(dy) * e.load(y); });
  row.each([&](const auto& e) {
    const Number g = e.load(dy), made = e.load(y), all = constant(sum);
    e.store(to, r.logarithm ? minus_times(exp_below(made), all, g) : made * (g - all));
  });
}
