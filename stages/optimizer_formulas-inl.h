// All optimizers, with torch.optim's single-tensor formulas in its order of operations, so that a
// stage and a PyTorch loop round alike.
//
// No namespace and no guard: each target includes it into its own namespace, which defines
// - Number: the weights of a tensor, those of a vector, or one weight;
// - Rate: double, or a tensor if the learning rate is on a device;
// - FORMULA: function specifiers;
// - LibTorch's in-place operators on Numbers, which round as LibTorch does there:
//   mul_(a, double), add_(a, double), add_(a, b), add_(a, b, Rate), div_(a, Rate),
//   lerp_(a, b, double), addcmul_(a, b, c, double), addcdiv_(a, b, c), addcdiv_(a, b, c, Rate),
//   addcdiv_within_(a, b, c, Rate, Rate bound): a += Rate (b / c, limited to +-bound),
//   and sqrt_of(a, b): a = sqrt(b).
//
// A formula changes weights and state in place. `scratch` is uninitialized.

struct Sgd {
  static constexpr OptimizerInfo kInfo = {
      .name = "sgd", .keys = {"momentum"}, .state = {"momentum"}};
  using Formula = Sgd;

  FORMULA Sgd(const UpdateNumbers& n, const Rate& lr, const Rate&)
      : momentum(n.momentum),
        spikes(n.spike_gradient != 0),
        step(-lr * n.spike_momentum),
        spike(-lr * n.spike_gradient) {}

  FORMULA void operator()(Number& weights, const Number& gradient, Number* state, Number&) const {
    if (momentum == 0) return add_(weights, gradient, step);
    mul_(state[0], momentum);
    add_(state[0], gradient);
    add_(weights, state[0], step);
    if (spikes) add_(weights, gradient, spike);
  }

  double momentum;
  bool spikes;
  Rate step, spike;
};

struct RmsProp {
  static constexpr OptimizerInfo kInfo = {
      .name = "rmsprop", .keys = {"momentum", "alpha", "eps"}, .state = {"square", "momentum"}};
  using Formula = RmsProp;

  FORMULA RmsProp(const UpdateNumbers& n, const Rate& lr, const Rate&)
      : alpha(n.alpha), eps(n.eps), momentum(n.momentum), step(-lr) {}

  FORMULA void operator()(Number& weights, const Number& gradient, Number* state,
                          Number& scratch) const {
    mul_(state[0], alpha);
    addcmul_(state[0], gradient, gradient, 1 - alpha);
    sqrt_of(scratch, state[0]);
    add_(scratch, eps);
    if (momentum == 0) return addcdiv_(weights, gradient, scratch, step);
    mul_(state[1], momentum);
    addcdiv_(state[1], gradient, scratch);
    add_(weights, state[1], step);
  }

  double alpha, eps, momentum;
  Rate step;
};

/// Kingma and Ba, arXiv 1412.6980.
struct Adam {
  static constexpr OptimizerInfo kInfo = {.name = "adam",
                                          .keys = {"beta1", "beta2", "eps", "clip"},
                                          .state = {"mean", "square"},
                                          .counts_steps = true};
  using Formula = Adam;

  FORMULA Adam(const UpdateNumbers& n, const Rate& lr, const Rate& steps)
      : beta1(n.beta1),
        beta2(n.beta2),
        eps(n.eps),
        clip(n.clip),
        step(-(lr / (1 - pow(n.beta1, steps)))),
        bound(n.clip * (1 - pow(n.beta1, steps))),
        unbias(sqrt(1 - pow(n.beta2, steps))) {}

  FORMULA void operator()(Number& weights, const Number& gradient, Number* state,
                          Number& scratch) const {
    lerp_(state[0], gradient, 1 - beta1);
    mul_(state[1], beta2);
    addcmul_(state[1], gradient, gradient, 1 - beta2);
    sqrt_of(scratch, state[1]);
    div_(scratch, unbias);
    add_(scratch, eps);
    if (clip > 0) return addcdiv_within_(weights, state[0], scratch, step, bound);
    addcdiv_(weights, state[0], scratch, step);
  }

  double beta1, beta2, eps, clip;
  Rate step, bound, unbias;
};

/// Loshchilov and Hutter, arXiv 1711.05101: Adam with decoupled weight decay.
struct AdamW : Adam {
  static constexpr OptimizerInfo kInfo = {.name = "adamw",
                                          .keys = {"beta1", "beta2", "eps", "clip"},
                                          .state = {"mean", "square"},
                                          .counts_steps = true,
                                          .decoupled = true};
};

template <class... Kinds>
struct OptimizerList {
  static constexpr OptimizerInfo kInfos[] = {Kinds::kInfo...};
  /// Calls `with` with std::type_identity of the formula of optimizer `number`.
  template <class With>
  FORMULA static void visit(int number, const With& with) {
    (void)((number-- == 0 && (with(std::type_identity<typename Kinds::Formula>()), true)) || ...);
  }
};

/// Sorted by name.
using Optimizers = OptimizerList<Adam, AdamW, RmsProp, Sgd>;
