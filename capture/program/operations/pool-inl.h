// The window of a pool's output where it meets the input, for cores and GPUs. FORMULA: function
// specifiers. No guard, since Highway includes it once for each instruction set.

struct PoolWindow {
  const PoolArguments& p;
  const Met rows, columns;
  FORMULA PoolWindow(const PoolArguments& all, int y, int x)
      : p(all),
        rows(all.window.rows, y, all.input.height),
        columns(all.window.columns, x, all.input.width) {}

  /// Calls work(index of an input pixel) for each.
  template <class Work>
  FORMULA void each(const Work& work) const {
    for (int i = rows.first; i < rows.last; ++i) {
      const int y = rows.begin + i * p.window.rows.dilation;
      for (int j = columns.first; j < columns.last; ++j)
        work(y * p.input.width + columns.begin + j * p.window.columns.dilation);
    }
  }
  /// What a mean multiplies the sum by.
  FORMULA float share() const {
    const int taps = p.counts_zeros ? taps_of(p.window) : rows.count() * columns.count();
    return 1 / (p.divisor > 0 ? p.divisor : float(taps));
  }
};
