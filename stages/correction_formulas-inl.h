// The corrections that are part of an update's kernel: how they change the mean gradient before the
// update, and what they remember of the weights after it.
//
// No namespace and no guard, as in optimizer_formulas-inl.h. The including scope defines
// - Number: the weights of a vector, or one weight, with the usual operators; FORMULA: function
//   specifiers;
// - constant(double), times_plus (a * b + c), size_of and root_of for Numbers.
// Elements `e` are of a flat buffer: e.load(buffer), e.store(buffer, Number), and e.only(Number):
// zeros where there is no element. `old`: the oldest row of the ring of old weights.

struct Uncorrected {
  static constexpr bool kMeasures = false;  ///< whether it sums up changes of weights in `way`
  FORMULA Uncorrected(const CorrectionNumbers&, const CorrectionMemory&, float*) {}
  FORMULA Number gradient(const auto&, Number, Number g) const { return g; }
  FORMULA void updated(const auto&, Number, Number) {}
};

struct Discrepancy : Uncorrected {
  FORMULA Discrepancy(const CorrectionNumbers& n, const CorrectionMemory& m, float* old)
      : Uncorrected(n, m, old),
        memory(m),
        decay(constant(n.decay)),
        fresh(constant(1 - n.decay)),
        back(constant(-double(n.updates))) {}
  FORMULA void updated(const auto& e, Number before, Number after) {
    const Number change = times_plus(after - before, fresh, e.load(memory.change) * decay);
    e.store(memory.change, change);
    e.store(memory.shift, change * back);
  }
  const CorrectionMemory memory;
  const Number decay, fresh, back;
};

struct WeightPrediction : Uncorrected {
  FORMULA WeightPrediction(const CorrectionNumbers& n, const CorrectionMemory& m, float* old)
      : Uncorrected(n, m, old), shift(m.shift), ahead(constant(double(n.updates))) {}
  FORMULA void updated(const auto& e, Number before, Number after) {
    e.store(shift, (after - before) * ahead);
  }
  float* const shift;
  const Number ahead;
};

struct OldWeights : Uncorrected {
  FORMULA OldWeights(const CorrectionNumbers& n, const CorrectionMemory& m, float* oldest)
      : Uncorrected(n, m, oldest), old(oldest) {}
  FORMULA void updated(const auto& e, Number, Number after) { e.store(old, after); }
  float* const old;
};

struct GapAware : OldWeights {
  static constexpr bool kMeasures = true;
  FORMULA GapAware(const CorrectionNumbers& n, const CorrectionMemory& m, float* oldest)
      : OldWeights(n, m, oldest),
        stepped(*m.stepped),
        step(constant(*m.step + 1e-20f)),
        way(constant(0)) {}
  FORMULA Number gradient(const auto& e, Number w, Number g) const {
    if (!stepped) return g;
    const Number gap = size_of(w - e.load(old)) / step;
    return g / (gap + constant(1));
  }
  FORMULA void updated(const auto& e, Number before, Number after) {
    way = way + e.only(size_of(after - before));
    OldWeights::updated(e, before, after);
  }
  const bool stepped;
  const Number step;
  Number way;
};

struct DelayCompensated : OldWeights {
  FORMULA DelayCompensated(const CorrectionNumbers& n, const CorrectionMemory& m, float* oldest)
      : OldWeights(n, m, oldest), squares(m.square), lambda(constant(n.lambda)) {}
  FORMULA Number gradient(const auto& e, Number w, Number g) const {
    const Number g2 = g * g;
    const Number square = times_plus(g2, constant(0.05), e.load(squares) * constant(0.95));
    e.store(squares, square);
    const Number strength = lambda / root_of(square + constant(1e-7));
    return times_plus(g2 * (w - e.load(old)), strength, g);
  }
  float* const squares;
  const Number lambda;
};

template <class With>
FORMULA void visit_correction(const CorrectionNumbers& n, const CorrectionMemory& m, float* oldest,
                              const With& with) {
  switch (n.rule) {
    case CorrectionRule::none:
      return with(Uncorrected(n, m, oldest));
    case CorrectionRule::discrepancy:
      return with(Discrepancy(n, m, oldest));
    case CorrectionRule::weight_prediction:
      return with(WeightPrediction(n, m, oldest));
    case CorrectionRule::gap_aware:
      return with(GapAware(n, m, oldest));
    case CorrectionRule::dc_asgd:
      return with(DelayCompensated(n, m, oldest));
  }
}
