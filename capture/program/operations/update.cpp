// An optimizer's update with a correction, if the gradient is finite: {weights, gradient, rate,
// finite, state..., memory...} -> {finite, skipped, to, state..., memory...}; operand `finite` may
// be undefined.
#include <ATen/ATen.h>

#include <algorithm>

#include "capture/program/lowering.h"
#include "stages/optimizer.h"

namespace millrace::program {
namespace {

struct UpdateOf {
  stages::UpdateNumbers numbers;
  std::size_t count = 0;    ///< of weights
  std::size_t buffers = 0;  ///< of the optimizer, without its number of steps
  bool given = false;       ///< operand `finite` is defined
};

kernels::UpdateArguments bind_update(const Node& node, const UpdateOf& of) {
  const at::Tensor& given = node.reads[3];
  kernels::UpdateArguments u{
      .numbers = of.numbers,
      .from = floats(node.reads[0]),
      .gradient = floats(node.reads[1]),
      .to = floats(node.writes[2]),
      .rate = static_cast<const double*>(node.reads[2].const_data_ptr()),
      .given = given.defined() ? static_cast<const bool*>(given.const_data_ptr()) : nullptr,
      .finite = static_cast<bool*>(node.writes[0].data_ptr()),
      .skipped = floats(node.writes[1]),
      .count = (long long)(of.count)};
  // Points at the next tensors: the optimizer's state in OptimizerInfo's order, then the
  // correction's memory in correction.cpp's.
  auto next = [at = node.writes.begin() + 3](auto*&... pointers) mutable {
    ((pointers = static_cast<std::remove_reference_t<decltype(pointers)>>((at++)->data_ptr())),
     ...);
  };
  for (std::size_t i = 0; i < of.buffers; ++i) next(u.state.buffers[i]);
  if (of.numbers.counts_steps) next(u.state.steps);
  using Rule = stages::CorrectionRule;
  const Rule rule = of.numbers.correction.rule;
  stages::CorrectionMemory& memory = u.memory;
  if (rule == Rule::discrepancy) next(memory.shift, memory.change);
  if (rule == Rule::weight_prediction) next(memory.shift);
  if (rule == Rule::gap_aware) next(memory.old, memory.newest, memory.step, memory.stepped);
  if (rule == Rule::dc_asgd) next(memory.old, memory.newest, memory.square);
  return u;
}

class CoreUpdate final : public Prepared {
 public:
  CoreUpdate(const UpdateOf& of, int threads) : all_finite_(std::size_t(threads)), of_(of) {
    info.kernel = kernels::instruction_set();
  }
  std::size_t scratch_bytes() const override {
    return kernels::update_sums(of_.numbers, of_.count) * sizeof(double);
  }
  void bind(const Node& node, char* scratch) override {
    operands_ = bind_update(node, of_);
    operands_.sums = reinterpret_cast<double*>(scratch);
  }
  bool take(std::span<LateGradient* const> gradients) override {
    if (gradients.empty() || operands_.given || scratch_bytes() > 0) return false;
    const auto inside = [&](const LateGradient* gradient) {
      const float* const begin = operands_.gradient;
      const std::span<float> place = gradient->place();
      return begin <= place.data() && place.data() + place.size() <= begin + of_.count;
    };
    if (!std::all_of(gradients.begin(), gradients.end(), inside)) return false;
    late_ = gradients;
    const auto less = [](const LateGradient* a, const LateGradient* b) {
      return a->scratch(0).size() < b->scratch(0).size();
    };
    roomiest_ = *std::max_element(late_.begin(), late_.end(), less);
    return true;
  }
  std::vector<bool> phases() const override { return {true, true, false}; }
  void run(int phase, kernels::Share share) override {
    if (phase == 0) {
      all_finite_[std::size_t(share.index)].value =
          operands_.given ? *operands_.given : is_finite(share);
      return;
    }
    const bool finite = std::all_of(all_finite_.begin(), all_finite_.end(),
                                    [](const Finite& part) { return part.value; });
    if (phase == 1) {
      finite ? update(share) : kernels::keep(operands_, share);
      return;
    }
    *operands_.finite = finite;
    if (finite) {
      kernels::count_step(operands_);
    } else if (!operands_.given) {
      *operands_.skipped += 1;
    }
    late_ = {};
  }

 private:
  /// One thread's result, on a cache line of its own.
  struct alignas(64) Finite {
    bool value = true;
  };

  bool is_finite(kernels::Share share) const {
    bool finite = true;
    each_made([&](std::size_t begin, std::size_t count) {
      finite &= kernels::is_finite({operands_.gradient + begin, count}, share);
    });
    for (const LateGradient* gradient : late_) {
      if (!finite || gradient->surely_finite()) continue;
      struct Check final : kernels::GradientTaker {
        void take(const float* part, std::size_t, std::size_t count) const override {
          finite &= kernels::is_finite({part, count}, {});
        }
        mutable bool finite = true;
      } check;
      gradient->make(&check, share, roomiest_->scratch(share.index).data());
      finite = check.finite;
    }
    return finite;
  }

  void update(kernels::Share share) const {
    if (late_.empty()) return kernels::update(operands_, share);
    each_made([&](std::size_t begin, std::size_t count) {
      const auto [first, last] = share.of(count, 16);
      kernels::update_part(operands_, operands_.gradient + begin + first, begin + first,
                           last - first);
    });
    struct Apply final : kernels::GradientTaker {
      explicit Apply(const kernels::UpdateArguments& operands) : operands(operands) {}
      void take(const float* part, std::size_t begin, std::size_t count) const override {
        kernels::update_part(operands, part, first + begin, count);
      }
      const kernels::UpdateArguments& operands;
      std::size_t first = 0;
    } apply(operands_);
    for (const LateGradient* gradient : late_) {
      apply.first = std::size_t(gradient->place().data() - operands_.gradient);
      gradient->make(&apply, share, roomiest_->scratch(share.index).data());
    }
  }

  /// Calls with (begin, count) for what the gradient already holds, between the late ones.
  template <class Call>
  void each_made(const Call& call) const {
    std::size_t at = 0;
    for (;;) {
      std::size_t next = of_.count, end = of_.count;
      for (const LateGradient* gradient : late_) {
        const auto begin = std::size_t(gradient->place().data() - operands_.gradient);
        if (begin < at || begin >= next) continue;
        next = begin;
        end = begin + gradient->place().size();
      }
      if (next > at) call(at, next - at);
      if (next == of_.count) return;
      at = end;
    }
  }

  std::vector<Finite> all_finite_;
  const UpdateOf of_;
  kernels::UpdateArguments operands_;
  std::span<LateGradient* const> late_;  ///< of the next run
  /// The one whose scratch suffices for all, so that threads need no barrier in between.
  const LateGradient* roomiest_ = nullptr;
};

std::string name_of(const stages::UpdateNumbers& n) {
  const std::string name = "update by " + stages::optimizer_names()[std::size_t(n.optimizer)];
  const stages::CorrectionRule rule = n.correction.rule;
  return rule == stages::CorrectionRule::none ? name
                                              : name + ", " + stages::correction_kind(rule).name;
}

Operation::OnGpu on_gpu(const UpdateOf& of) {
  const stages::UpdateNumbers& n = of.numbers;
  const int count = int(of.count);
  const int blocks = std::clamp(gpu::divided_up(count, gpu::kThreads), 1, gpu::kMostUpdateBlocks);
  static constexpr const char* rules[] = {"none", "discrepancy", "weight_prediction", "gap_aware",
                                          "dc_asgd"};
  const stages::CorrectionRule rule = n.correction.rule;
  const auto kernel = [&](const std::string& expression, int on) {
    return GpuKernel{expression, gpu::kThreads, on, 2 * gpu::kThreads + gpu::kFormulaFloats};
  };
  std::vector<GpuKernel> kernels = {
      kernel("look_at_gradient", of.given ? 1 : blocks),
      kernel("update<" + numbers(n.optimizer) +
                 ", millrace::stages::CorrectionRule::" + rules[int(rule)] + ">",
             blocks)};
  if (rule == stages::CorrectionRule::gap_aware) kernels.push_back(kernel("measure_step", 1));
  const auto bind = [=](const Node& bound, char* scratch) {
    kernels::UpdateArguments u = bind_update(bound, of);
    u.notes = reinterpret_cast<kernels::UpdateNotes*>(scratch);
    u.blocks = blocks;
    return u;
  };
  return gpu_call(kernels, bind, sizeof(kernels::UpdateNotes));
}

// check_and_update(weights, to, gradient, state[], memory[], numbers, rate, skipped, finite?)
bool update(Lowering& lower, const Call& call) {
  const at::Tensor &from = tensor(call, 0), &to = tensor(call, 1), &gradient = tensor(call, 2),
                   &rate = tensor(call, 6), &skipped = tensor(call, 7);
  if (!is_dense(from) || !is_dense(gradient) || !is_dense(skipped) ||
      rate.scalar_type() != at::kDouble)
    return false;
  std::vector<at::Tensor> reads = {from, gradient, rate, optional(call, 8)},
                          writes = {result(call), skipped, to};
  for (const std::size_t list : {3, 4}) {
    for (const at::Tensor& kept : call.arguments[list].toTensorVector()) {
      reads.push_back(kept);
      writes.push_back(kept);
    }
  }
  const auto numbers = call.arguments[5].toCustomClass<stages::NumbersArgument>()->numbers;
  const UpdateOf of{.numbers = numbers,
                    .count = std::size_t(from.numel()),
                    .buffers = call.arguments[3].toTensorVector().size() - numbers.counts_steps,
                    .given = reads[3].defined()};
  return lower.add(
      {.name = name_of(of.numbers),
       .in_place = true,
       .update = true,
       .on_cores = [of](const Node&,
                        int threads) { return std::make_unique<CoreUpdate>(of, threads); },
       .on_gpu = on_gpu(of)},
      std::move(reads), std::move(writes));
}

}  // namespace

const Rules update_rules = {{"millrace::check_and_update", {update}}};

}  // namespace millrace::program
