#include "capture/program/operations/convolution.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

class CoreConvolution : public Prepared {
 public:
  CoreConvolution(const kernels::Convolution& convolution, std::unique_ptr<kernels::Kernel> kernel,
                  int threads)
      : pass_(convolution.pass),
        kernel_(std::move(kernel)),
        threads_(threads),
        scratch_((kernel_->scratch_floats() + 15) / 16 * 16) {
    info.name = describe(convolution);
    info.kernel = kernel_->name;
    info.flops = kernels::flops(convolution);
  }
  std::size_t scratch_bytes() const override {
    return (std::size_t(threads_) * scratch_ + kernel_->shared_floats(threads_)) * sizeof(float);
  }
  void bind(const Node& node, char* scratch) override {
    using kernels::Pass;
    const Pass pass = pass_;
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
  void run(int phase, kernels::Share share) override {
    kernels::Operands operands = operands_;
    operands.scratch += std::size_t(share.index) * scratch_;
    kernel_->run(operands, phase, share);
  }

 protected:
  const kernels::Pass pass_;
  const std::unique_ptr<kernels::Kernel> kernel_;
  const int threads_;
  const std::size_t scratch_;  ///< floats per thread
  kernels::Operands operands_;
};

class LateConvolution final : public CoreConvolution, public LateGradient {
 public:
  LateConvolution(const Node& node, const Convolve& of, std::unique_ptr<kernels::Kernel> kernel,
                  int threads)
      : CoreConvolution(of.convolution, std::move(kernel), threads),
        late_(*of.late),
        output_(of.convolution.output),
        count_(std::size_t(node.writes[0].numel())),
        source_(std::size_t(node.reads[0].numel())),
        x_(std::size_t(node.reads[1].numel())) {
    late_.waiting.reserve(late_.waiting.capacity() + 1);
  }
  void run(int phase, kernels::Share share) override {
    if (late_.none) return CoreConvolution::run(phase, share);
    if (share.index == 0) keep();
  }

  std::span<float> place() const override { return {operands_.made, count_}; }
  bool surely_finite() const override { return surely_finite_; }
  std::span<float> scratch(int thread) const override {
    return {operands_.scratch + std::size_t(thread) * scratch_, scratch_};
  }
  void make(const kernels::GradientTaker* taker, kernels::Share share,
            float* scratch) const override {
    kernels::Operands operands = operands_;
    operands.source = source_.data();
    operands.x = x_.data();
    operands.bias_gradient = nullptr;
    operands.taker = taker;
    operands.scratch = scratch;
    kernel_->run(operands, 0, share);
  }

 private:
  void keep() {
    std::copy_n(operands_.source, source_.size(), source_.begin());
    std::copy_n(operands_.x, x_.size(), x_.begin());
    // A sum has at most one product per pixel; the factor 2 far exceeds rounding errors.
    const double pixels = double(output_.height) * output_.width;
    surely_finite_ = 2 * pixels * double(kernels::largest(source_)) * double(kernels::largest(x_)) <
                     std::numeric_limits<float>::max();
    if (operands_.bias_gradient)
      kernels::channel_sums(output_, operands_.source, 1, operands_.bias_gradient, {});
    late_.waiting.push_back(this);
  }

  LateGradients& late_;
  const kernels::Layout output_;
  const std::size_t count_;
  std::vector<float> source_, x_;
  bool surely_finite_ = false;
};

bool take_over(Node& node, kernels::Function function, const at::Tensor& right) {
  using kernels::Function, kernels::Pass, kernels::Activation;
  kernels::Convolution& c = as_convolution(node)->convolution;
  if (c.pass == Pass::kForward && c.activation == Activation::kNone) {
    if (function == Function::relu) c.activation = Activation::kRelu;
    if (function == Function::sigmoid) c.activation = Activation::kSigmoid;
    return c.activation != Activation::kNone;
  }
  if (c.pass != Pass::kDataGradient || c.masked || function != Function::relu_gradient)
    return false;
  node.reads.push_back(right);
  return c.masked = true;
}

std::unique_ptr<Prepared> on_cores(const Node& node, int threads) {
  const Convolve& of = *as_convolution(node);
  constexpr std::int64_t kFewWeights = 1 << 16;
  auto kernel = kernels::make_kernel(of.convolution);
  // The inputs kept aside should be small compared with the gradient.
  if (of.late && kernel->gives_parts() && node.writes[0].numel() >= kFewWeights &&
      4 * (node.reads[0].numel() + node.reads[1].numel()) <= node.writes[0].numel())
    return std::make_unique<LateConvolution>(node, of, std::move(kernel), threads);
  return std::make_unique<CoreConvolution>(of.convolution, std::move(kernel), threads);
}

// ---- Rules.

constexpr int kLargestOnGpu = 31;  ///< taps per row: their sums fill a thread's registers
/// In floats: larger unfolded inputs are left to LibTorch, which doesn't unfold.
constexpr double kLargestUnfolded = 4 << 20;

bool is_transposed(const Call& call, std::size_t first) {
  return call.arguments[first + 3].toBool();
}

/// The convolution, its pass left open, if there are kernels for it. `first`: argument index of
/// stride; padding, dilation, transposed, output_padding and groups follow.
std::optional<kernels::Convolution> described(const at::Tensor& input, const at::Tensor& output,
                                              const at::Tensor& weight, const Call& call,
                                              std::size_t first) {
  if (!are_pictures(input, output) || weight.dim() != 4 || !is_dense(weight) ||
      !weight.is_contiguous())
    return {};
  const auto taps = [&](std::size_t side) {
    return kernels::Taps{.count = int(weight.size(std::int64_t(2 + side))),
                         .stride = number_of_side(call, first, side),
                         .padding = number_of_side(call, first + 1, side),
                         .dilation = number_of_side(call, first + 2, side)};
  };
  const kernels::TapGrid window = {taps(0), taps(1)};
  kernels::Convolution c = {.input = layout_of(input),
                            .output = layout_of(output),
                            .kernel = window.rows.count,
                            .stride = window.rows.stride,
                            .groups = int(call.arguments[first + 5].toInt())};
  if (is_transposed(call, first)) std::swap(c.input, c.output);
  const auto usual = [&](const kernels::Taps& t) {
    return t.count == c.kernel && t.stride == c.stride && t.padding == t.count / 2 &&
           t.dilation == 1;
  };
  if (c.kernel % 2 == 0 || !usual(window.rows) || !usual(window.columns)) c.window = window;
  if (input.is_cuda())
    return window.columns.count <= kLargestOnGpu ? std::optional(c) : std::nullopt;
  const bool each_alone = c.groups == c.input.channels && c.groups == c.output.channels;
  const double unfolded = double(c.output.height) * c.output.width * c.input.channels / c.groups *
                          kernels::taps_of(window);
  if (c.window && !each_alone && unfolded > kLargestUnfolded) return {};
  return c;
}

// convolution(input, weight, bias?, stride, ...). A transposed convolution is the input gradient of
// another one, whose output is this one's input.
bool convolution(Lowering& lower, const Call& call) {
  const at::Tensor &x = tensor(call, 0), &w = tensor(call, 1), &y = result(call);
  const at::Tensor bias = optional(call, 2);
  std::optional<kernels::Convolution> c = described(x, y, w, call, 3);
  if (!c || !are_plain(bias)) return false;
  const bool transposed = is_transposed(call, 3);
  if (transposed) c->pass = kernels::Pass::kDataGradient;
  std::vector<at::Tensor> reads = {lower.read(x), w};
  if (bias.defined() && !transposed) reads.push_back(bias);
  Operation made = convolution_of(*c);
  if (!bias.defined() || !transposed) return lower.add_image(y, std::move(made), std::move(reads));
  const at::Tensor sums = lower.own(y, image_format(y.device()));
  lower.add(std::move(made), std::move(reads), {sums});
  return lower_map(lower, {.function = kernels::Function::add}, {sums, bias.view({-1, 1, 1})}, y);
}

// convolution_backward(gradient, input, weight, bias_sizes?, stride, ..., output_mask)
bool convolution_backward(Lowering& lower, const Call& call) {
  const at::Tensor &dy = tensor(call, 0), &x = tensor(call, 1), &w = tensor(call, 2);
  const at::Tensor &dx = result(call, 0), &dw = result(call, 1), &db = result(call, 2);
  std::optional<kernels::Convolution> c = described(x, dy, w, call, 4);
  if (!c || (db.defined() && !dw.defined())) return false;
  const bool transposed = is_transposed(call, 4);
  const at::Tensor gradient = lower.read(dy);
  if (dx.defined()) {
    c->pass = transposed ? kernels::Pass::kForward : kernels::Pass::kDataGradient;
    lower.add_image(dx, convolution_of(*c), {gradient, w});
  }
  if (!dw.defined()) return true;
  const at::Tensor plain = dw.is_contiguous() ? dw : lower.own(dw, at::MemoryFormat::Contiguous);
  c->pass = kernels::Pass::kWeightGradient;
  std::vector<at::Tensor> reads = {gradient, lower.read(x)};
  if (transposed) std::swap(reads[0], reads[1]);
  lower.add(convolution_of(*c), std::move(reads), {plain, transposed ? at::Tensor() : db});
  if (!plain.is_same(dw)) lower.copy(plain, dw);
  if (transposed && db.defined()) lower.add(channel_sums_of(gradient, 1), {gradient}, {db});
  return true;
}

}  // namespace

Operation convolution_of(const kernels::Convolution& convolution) {
  return {.name = "convolution",
          .take_over = take_over,
          .on_cores = on_cores,
          .on_gpu = gpu_convolution,
          .attributes = Convolve{convolution}};
}

const Rules convolution_rules = {
    {"aten::convolution", {convolution}},
    {"aten::convolution_backward", {convolution_backward}},
};

}  // namespace millrace::program
