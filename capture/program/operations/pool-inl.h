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
};
