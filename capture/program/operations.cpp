#include "capture/program/operations.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>

#include "stages/tensor_split.h"

namespace millrace::program {
namespace {

using kernels::Share;

/// A LibTorch operator on the tensors of its recording.
class TorchOperation final : public Prepared {
 public:
  explicit TorchOperation(const Call& call) : call_(call) {
    info.name = call.name();
    info.kernel = capture::kLibTorch;
  }
  void bind(const Node&, char*) override {}
  void run(int, Share) override {
    stack_.assign(call_.arguments.begin(), call_.arguments.end());
    call_.operation.callBoxed(stack_);
    for (std::size_t i = 0; i < stack_.size(); ++i) keep(call_.results[i], stack_[i]);
    stack_.clear();
  }

 private:
  void keep(const c10::IValue& recorded, const c10::IValue& made) const {
    if (recorded.isTensor()) keep(recorded.toTensor(), made.toTensor());
    if (!recorded.isTensorList()) return;
    const std::vector<at::Tensor> all = recorded.toTensorVector(), now = made.toTensorVector();
    for (std::size_t i = 0; i < all.size(); ++i) keep(all[i], now[i]);
  }
  /// Leaves `made` where the recorded call, which may have asked for less, left its result.
  void keep(at::Tensor recorded, const at::Tensor& made) const {
    if (!recorded.defined() || recorded.const_data_ptr() == made.const_data_ptr()) return;
    if (!made.defined() || recorded.sizes() != made.sizes())
      throw std::logic_error(info.name + " gives another shape than when it was recorded");
    recorded.copy_(made);
  }
  const Call call_;
  torch::jit::Stack stack_;
};

class ConvolutionOperation : public Prepared {
 public:
  ConvolutionOperation(const Node& node, std::unique_ptr<kernels::Kernel> kernel, int threads)
      : kernel_(std::move(kernel)),
        threads_(threads),
        scratch_((kernel_->scratch_floats() + 15) / 16 * 16) {
    info.name = describe(node.convolution);
    info.kernel = kernel_->name;
    info.flops = kernels::flops(node.convolution);
  }
  std::size_t scratch_bytes() const override {
    return (std::size_t(threads_) * scratch_ + kernel_->shared_floats(threads_)) * sizeof(float);
  }
  void bind(const Node& node, char* scratch) override {
    using kernels::Pass;
    const Pass pass = node.convolution.pass;
    operands_.scratch = reinterpret_cast<float*>(scratch);
    operands_.shared = operands_.scratch + std::size_t(threads_) * scratch_;
    auto read = node.reads.begin();
    const auto next = [&] { return read == node.reads.end() ? nullptr : floats(*read++); };
    operands_.source = next();
    if (pass != Pass::kWeightGradient) operands_.weights = next();
    if (makes_weights(pass)) operands_.x = next();
    (pass == Pass::kForward ? operands_.bias : operands_.mask) = next();
    operands_.made = floats(node.writes[0]);
    if (pass == Pass::kGradients) operands_.weight_gradient = floats(node.writes[1]);
    if (makes_weights(pass)) operands_.bias_gradient = floats(node.writes.back());
  }
  std::vector<bool> phases() const override {
    return std::vector<bool>(std::size_t(kernel_->phases(threads_)), true);
  }
  void run(int phase, Share share) override {
    kernels::Operands operands = operands_;
    operands.scratch += std::size_t(share.index) * scratch_;
    kernel_->run(operands, phase, share);
  }

 protected:
  const std::unique_ptr<kernels::Kernel> kernel_;
  const int threads_;
  const std::size_t scratch_;  ///< floats per thread
  kernels::Operands operands_;
};

class LateConvolution final : public ConvolutionOperation, public LateGradient {
 public:
  LateConvolution(const Node& node, std::unique_ptr<kernels::Kernel> kernel, int threads)
      : ConvolutionOperation(node, std::move(kernel), threads),
        output_(node.convolution.output),
        count_(std::size_t(node.writes[0].numel())),
        source_(std::size_t(node.reads[0].numel())),
        x_(std::size_t(node.reads[1].numel())) {}
  LateGradient* late() override { return this; }
  void keep() override {
    std::copy_n(operands_.source, source_.size(), source_.begin());
    std::copy_n(operands_.x, x_.size(), x_.begin());
    // A sum has at most one product per pixel; the factor 2 far exceeds rounding errors.
    const double pixels = double(output_.height) * output_.width;
    surely_finite_ = 2 * pixels * double(kernels::largest(source_)) * double(kernels::largest(x_)) <
                     std::numeric_limits<float>::max();
    if (operands_.bias_gradient)
      kernels::channel_sums(output_, operands_.source, 1, operands_.bias_gradient, {});
  }

  std::span<float> place() const override { return {operands_.made, count_}; }
  bool surely_finite() const override { return surely_finite_; }
  std::span<float> scratch(int thread) const override {
    return {operands_.scratch + std::size_t(thread) * scratch_, scratch_};
  }
  void make(const kernels::GradientTaker* taker, Share share, float* scratch) const override {
    kernels::Operands operands = operands_;
    operands.source = source_.data();
    operands.x = x_.data();
    operands.bias_gradient = nullptr;
    operands.taker = taker;
    operands.scratch = scratch;
    kernel_->run(operands, 0, share);
  }

 private:
  const kernels::Layout output_;
  const std::size_t count_;
  std::vector<float> source_, x_;
  bool surely_finite_ = false;
};

std::unique_ptr<Prepared> convolution(const Node& node, int threads, bool may_wait) {
  constexpr std::int64_t kFewWeights = 1 << 16;
  auto kernel = kernels::make_kernel(node.convolution);
  // The inputs kept aside should be small compared with the gradient.
  if (may_wait && kernel->gives_parts() && node.writes[0].numel() >= kFewWeights &&
      4 * (node.reads[0].numel() + node.reads[1].numel()) <= node.writes[0].numel())
    return std::make_unique<LateConvolution>(node, std::move(kernel), threads);
  return std::make_unique<ConvolutionOperation>(node, std::move(kernel), threads);
}

class KernelCall final : public Prepared {
 public:
  struct Addresses {
    std::array<float*, 3> reads{}, writes{};
  };
  using Call = std::function<void(const Addresses& at, Share share)>;

  /// \param shared the team shares the call; otherwise its first thread makes it.
  KernelCall(const Node& node, bool shared, Call call) : shared_(shared), call_(std::move(call)) {
    info.name = name_of(node);
    info.kernel = kernels::instruction_set();
  }
  std::vector<bool> phases() const override { return {shared_}; }
  void bind(const Node& node, char*) override {
    std::transform(node.reads.begin(), node.reads.end(), at_.reads.begin(), floats);
    std::transform(node.writes.begin(), node.writes.end(), at_.writes.begin(), floats);
  }
  void run(int, Share share) override { call_(at_, share); }

 private:
  const bool shared_;
  const Call call_;
  Addresses at_;
};
using Addresses = KernelCall::Addresses;

std::unique_ptr<Prepared> kernel_call(const Node& node) {
  const auto shared = [&](KernelCall::Call call) {
    return std::make_unique<KernelCall>(node, true, std::move(call));
  };
  const auto alone = [&](KernelCall::Call call) {
    return std::make_unique<KernelCall>(node, false, std::move(call));
  };
  switch (node.kind) {
    case Kind::map:
      return shared([m = node.map](const Addresses& at, Share share) {
        kernels::map(m, at.reads[0], at.reads[1], at.writes[0], share);
      });
    case Kind::mse:
      if (!node.gradient) {
        return alone([l = layout_of(node.reads[0])](const Addresses& at, Share) {
          *at.writes[0] = kernels::mse(l, at.reads[0], at.reads[1], nullptr, false);
        });
      }
      return alone([l = layout_of(node.reads[1]), through_sigmoid = node.through_sigmoid](
                       const Addresses& at, Share) {
        kernels::mse(l, at.reads[1], at.reads[2], at.writes[0], through_sigmoid, *at.reads[0]);
      });
    case Kind::channel_sums:
      return shared(
          [l = layout_of(node.reads[0]), factor = node.factor](const Addresses& at, Share share) {
            kernels::channel_sums(l, at.reads[0], factor, at.writes[0], share);
          });
    case Kind::zero:
      return alone([bytes = node.writes[0].nbytes()](const Addresses& at, Share) {
        std::memset(at.writes[0], 0, bytes);
      });
    case Kind::softmax:
      return shared([m = node.matrix, log = node.logarithm, gradient = node.gradient](
                        const Addresses& at, Share share) {
        gradient ? kernels::softmax_gradient(m, log, at.reads[0], at.reads[1], at.writes[0], share)
                 : kernels::softmax(m, log, at.reads[0], at.writes[0], share);
      });
    case Kind::pool:
      return shared([p = node.pool, gradient = node.gradient](const Addresses& at, Share share) {
        gradient ? kernels::pool_gradient(p, at.reads[0], at.reads[1], at.writes[0], share)
                 : kernels::pool(p, at.reads[0], at.writes[0], share);
      });
    default:
      throw std::logic_error("a node of no kind");
  }
}

/// millrace::add_up. All ranks that share the modules run the same programs.
std::unique_ptr<Prepared> add_up(const Node& node) {
  auto* const reducer = reinterpret_cast<stages::Reducer*>(node.call->arguments[1].toInt());
  const int place = int(node.call->arguments[2].toInt());
  const auto count = std::size_t(node.writes[0].numel());
  auto made = std::make_unique<KernelCall>(node, false, [=](const Addresses& at, Share) {
    std::memcpy(at.writes[0], at.reads[0], count * sizeof(float));
    reducer->add_up({at.writes[0], count}, place);
  });
  made->info.kernel = "ranks";
  return made;
}

class Norm final : public Prepared {
 public:
  explicit Norm(const Node& node)
      : gradient_(node.gradient),
        layer_(node.kind == Kind::layer_norm),
        matrix_(node.matrix),
        norm_(node.norm) {
    info.name = name_of(node);
    info.kernel = kernels::instruction_set();
  }
  std::size_t scratch_bytes() const override { return norm_.scratch() * sizeof(double); }
  void bind(const Node& node, char* scratch) override {
    bind_norm(node, operands_);
    operands_.scratch = reinterpret_cast<double*>(scratch);
  }
  std::vector<bool> phases() const override {
    return layer_ ? std::vector<bool>{true} : std::vector<bool>{true, false, true};
  }
  void run(int phase, Share share) override {
    if (layer_) {
      gradient_ ? kernels::layer_norm_gradient(matrix_, operands_, share)
                : kernels::layer_norm(matrix_, norm_.eps, operands_, share);
    } else {
      gradient_ ? kernels::group_norm_gradient(norm_, operands_, phase, share)
                : kernels::group_norm(norm_, operands_, phase, share);
    }
  }

 private:
  const bool gradient_, layer_;
  const kernels::Matrix matrix_;  ///< of a layer norm
  const kernels::GroupNorm norm_;
  kernels::GroupNormOperands operands_;
};

/// millrace::check_and_update in one pass.
class Update final : public Prepared {
 public:
  Update(const Node& node, int threads)
      : all_finite_(std::size_t(threads)),
        numbers_(numbers_of_update(node)),
        count_(std::size_t(node.reads[0].numel())) {
    info.name = name_of(node);
    info.kernel = kernels::instruction_set();
  }
  std::size_t scratch_bytes() const override {
    return kernels::update_sums(numbers_, count_) * sizeof(double);
  }
  void bind(const Node& node, char* scratch) override {
    bind_update(node, numbers_, operands_);
    operands_.sums = reinterpret_cast<double*>(scratch);
    operands_.count = count_;
  }
  bool take(std::span<LateGradient* const> gradients) override {
    if (gradients.empty() || operands_.given || scratch_bytes() > 0) return false;
    const auto inside = [&](const LateGradient* gradient) {
      const float* const begin = operands_.gradient;
      const std::span<float> place = gradient->place();
      return begin <= place.data() && place.data() + place.size() <= begin + count_;
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
  void run(int phase, Share share) override {
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
      kernels::count_step(numbers_, operands_);
    } else if (!operands_.given) {
      *operands_.skipped += 1;
    }
    late_ = {};
  }

 private:
  struct Operands : kernels::UpdateOperands {
    const double* rate = nullptr;
    const bool* given = nullptr;  ///< null: check the gradient
    bool* finite = nullptr;
    float* skipped = nullptr;
  };
  /// One thread's result, on a cache line of its own.
  struct alignas(64) Finite {
    bool value = true;
  };

  bool is_finite(Share share) const {
    bool finite = true;
    each_made([&](std::size_t begin, std::size_t count) {
      finite &= kernels::is_finite({.gradient = operands_.gradient + begin, .count = count}, share);
    });
    for (const LateGradient* gradient : late_) {
      if (!finite || gradient->surely_finite()) continue;
      struct Check final : kernels::GradientTaker {
        void take(const float* part, std::size_t, std::size_t count) const override {
          finite &= kernels::is_finite({.gradient = part, .count = count}, {});
        }
        mutable bool finite = true;
      } check;
      gradient->make(&check, share, roomiest_->scratch(share.index).data());
      finite = check.finite;
    }
    return finite;
  }

  void update(Share share) const {
    if (late_.empty()) return kernels::update(numbers_, operands_, *operands_.rate, share);
    each_made([&](std::size_t begin, std::size_t count) {
      const auto [first, last] = share.of(count, 16);
      kernels::update_part(numbers_, operands_, *operands_.rate, operands_.gradient + begin + first,
                           begin + first, last - first);
    });
    struct Apply final : kernels::GradientTaker {
      explicit Apply(const Update& update) : update(update) {}
      void take(const float* part, std::size_t begin, std::size_t count) const override {
        kernels::update_part(update.numbers_, update.operands_, *update.operands_.rate, part,
                             first + begin, count);
      }
      const Update& update;
      std::size_t first = 0;
    } apply(*this);
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
      std::size_t next = count_, end = count_;
      for (const LateGradient* gradient : late_) {
        const auto begin = std::size_t(gradient->place().data() - operands_.gradient);
        if (begin < at || begin >= next) continue;
        next = begin;
        end = begin + gradient->place().size();
      }
      if (next > at) call(at, next - at);
      if (next == count_) return;
      at = end;
    }
  }

  std::vector<Finite> all_finite_;
  const stages::UpdateNumbers numbers_;
  const std::size_t count_;
  Operands operands_;
  std::span<LateGradient* const> late_;  ///< of the next run
  /// Its scratch is large enough for all of them, so that threads need no barrier in between.
  const LateGradient* roomiest_ = nullptr;
};

/// Whether channels are adjacent, whatever the pixel stride.
bool has_pixels(const at::Tensor& t) {
  return t.dim() == 4 && t.size(0) == 1 && t.stride(1) == 1;
}

std::unique_ptr<Prepared> copy(const Node& node) {
  const at::Tensor from = node.reads[0], to = node.writes[0];
  const auto call = [&](const char* name, KernelCall::Call call) {
    auto made = std::make_unique<KernelCall>(node, false, std::move(call));
    made->info.name = name;
    return made;
  };
  if (lie_alike(from, to)) {
    return call("copy", [bytes = from.nbytes()](const Addresses& at, Share) {
      std::memcpy(at.writes[0], at.reads[0], bytes);
    });
  }
  if (is_image(to) && from.is_contiguous()) {
    return call("copy of planes to pixels", [=](const Addresses& at, Share) {
      kernels::from_planes(at.reads[0], at.writes[0], layout_of(to));
    });
  }
  if (is_image(from) && to.is_contiguous()) {
    return call("copy of pixels to planes", [=](const Addresses& at, Share) {
      kernels::to_planes(at.reads[0], layout_of(from), at.writes[0]);
    });
  }
  if (has_pixels(from) && has_pixels(to)) {
    return call("copy of some channels", [=](const Addresses& at, Share) {
      for (std::int64_t y = 0; y < to.size(2); ++y) {
        for (std::int64_t x = 0; x < to.size(3); ++x)
          std::copy_n(at.reads[0] + y * from.stride(2) + x * from.stride(3), to.size(1),
                      at.writes[0] + y * to.stride(2) + x * to.stride(3));
      }
    });
  }
  auto made = call("copy", [=](const Addresses&, Share) { to.copy_(from); });
  made->info.kernel = capture::kLibTorch;
  return made;
}

}  // namespace

stages::UpdateNumbers numbers_of_update(const Node& node) {
  return stages::numbers_in(node.call->arguments[5].toStringRef());
}

std::unique_ptr<Prepared> prepare(const Node& node, int threads, bool may_wait) {
  const bool on_gpu = node.kind == Kind::transfer ||
                      std::any_of(node.writes.begin(), node.writes.end(),
                                  [](const at::Tensor& t) { return t.defined() && t.is_cuda(); });
  if (node.kind != Kind::torch && on_gpu) return prepare_on_gpu(node);
  switch (node.kind) {
    case Kind::torch:
      return std::make_unique<TorchOperation>(*node.call);
    case Kind::convolution:
      return convolution(node, threads, may_wait);
    case Kind::group_norm:
    case Kind::layer_norm:
      return std::make_unique<Norm>(node);
    case Kind::copy:
      return copy(node);
    case Kind::update:
      return std::make_unique<Update>(node, threads);
    case Kind::add_up:
      return add_up(node);
    default:
      return kernel_call(node);
  }
}

}  // namespace millrace::program
