// A pixel of a resampled picture, for cores and GPUs, written as the formulas of
// kernels/functions-inl.h. No guard, since Highway includes it once for each instruction set.

/// `load(index of an input pixel)`.
template <class Load>
FORMULA Number resampled(const ResampleArguments& r, int y, int x, const Load& load) {
  Number sum = constant(0);
  for (int i = y * r.rows.most, end = i + r.rows.counts[y]; i < end; ++i) {
    const int first = r.rows.inputs[i] * r.input.width;
    Number row = constant(0);
    for (int j = x * r.columns.most, last = j + r.columns.counts[x]; j < last; ++j)
      row = times_plus(constant(r.columns.weights[j]), load(first + r.columns.inputs[j]), row);
    sum = times_plus(constant(r.rows.weights[i]), row, sum);
  }
  return sum;
}
