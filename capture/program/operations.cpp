#include "capture/program/operations.h"

#include <ATen/ATen.h>  // operators as they were

#include <cstring>    // memcpy
#include <stdexcept>  // std::logic_error

#include "capture/program/kernels/norm.h"
#include "stages/guarded_update.h"

namespace millrace::program {
namespace {

float* floats(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<float*>(tensor.data_ptr()) : nullptr;
}

std::string text_of(const kernels::Layout& layout) {
  return std::to_string(layout.channels) + "x" + std::to_string(layout.height) + "x" +
         std::to_string(layout.width);
}

/// "forward 16x64x64 -> 16x64x64 k5 s1 relu".
std::string describe(const kernels::Convolution& c) {
  using kernels::Activation, kernels::Pass;
  const char* pass = c.pass == Pass::kForward        ? "forward "
                     : c.pass == Pass::kDataGradient ? "data-gradient "
                                                     : "weight-gradient ";
  std::string text = pass + text_of(c.input) + " -> " + text_of(c.output) + " k" +
                     std::to_string(c.kernel) + " s" + std::to_string(c.stride);
  if (c.activation == Activation::kRelu) text += " relu";
  if (c.activation == Activation::kSigmoid) text += " sigmoid";
  if (c.masked) text += " masked";
  return text;
}

/// The operator that was called, on the tensors of its recording.
class TorchOperation final : public Prepared {
 public:
  explicit TorchOperation(const Call& call) : call_(call) {
    info.name = call.name();
    info.kernel = capture::kLibTorch;
    each_tensor(call_.results, [&](const at::Tensor& t) { recorded_.push_back(t); });
  }
  void bind(const Node&, char*) override {}
  void run() override {
    stack_.assign(call_.arguments.begin(), call_.arguments.end());
    call_.operation.callBoxed(stack_);
    auto next = recorded_.begin();
    each_tensor(stack_, [&](const at::Tensor& made) { keep(*next++, made); });
    stack_.clear();
  }

 private:
  /// Leaves `made` where the recorded call left its result.
  static void keep(at::Tensor& recorded, const at::Tensor& made) {
    if (recorded.const_data_ptr() == made.const_data_ptr()) return;
    if (recorded.sizes() != made.sizes())
      throw std::logic_error("a result has another shape than when it was recorded");
    recorded.copy_(made);
  }
  const Call call_;
  torch::jit::Stack stack_;
  std::vector<at::Tensor> recorded_;
};

class ConvolutionOperation final : public Prepared {
 public:
  explicit ConvolutionOperation(const Node& node)
      : kernel_(kernels::make_kernel(node.convolution)) {
    info.name = describe(node.convolution);
    info.kernel = kernel_->name();
    info.flops = kernels::flops(node.convolution);
  }
  std::size_t scratch_bytes() const override {
    return (packed_floats() + kernel_->scratch_floats()) * sizeof(float);
  }
  void bind(const Node& node, char* scratch) override {
    auto* memory = reinterpret_cast<float*>(scratch);
    operands_.packed = packed_ = memory;
    operands_.scratch = memory + packed_floats();
    weights_ = floats(node.reads[1]);
    switch (node.convolution.pass) {
      case kernels::Pass::kForward:
        operands_.x = floats(node.reads[0]);
        if (node.reads.size() > 2) operands_.bias = floats(node.reads[2]);
        operands_.y = floats(node.writes[0]);
        return;
      case kernels::Pass::kDataGradient:
        operands_.dy = floats(node.reads[0]);
        if (node.reads.size() > 2) operands_.mask = floats(node.reads[2]);
        operands_.dx = floats(node.writes[0]);
        return;
      case kernels::Pass::kWeightGradient:
        operands_.dy = floats(node.reads[0]);
        operands_.x = floats(node.reads[1]);
        operands_.weight_gradient = floats(node.writes[0]);
        operands_.bias_gradient = floats(node.writes[1]);
        return;
    }
  }
  void run() override {
    if (kernel_->packed_floats() > 0) kernel_->pack(weights_, packed_);
    kernel_->run(operands_);
  }

 private:
  std::size_t packed_floats() const { return (kernel_->packed_floats() + 15) / 16 * 16; }
  std::unique_ptr<kernels::Kernel> kernel_;
  kernels::Operands operands_;
  const float* weights_ = nullptr;
  float* packed_ = nullptr;
};

/// One function over all elements.
class Elementwise final : public Prepared {
 public:
  explicit Elementwise(const Node& node) {
    static const char* names[] = {
        "", "", "", "", "relu", "sigmoid", "relu mask", "sigmoid gradient", "add"};
    kind_ = node.kind;
    info.name = names[int(node.kind)];
    info.kernel = kernels::instruction_set();
    count_ = std::size_t(node.writes[0].numel());
  }
  void bind(const Node& node, char*) override {
    a_ = floats(node.reads[0]);
    if (node.reads.size() > 1) b_ = floats(node.reads[1]);
    made_ = floats(node.writes[0]);
  }
  void run() override {
    switch (kind_) {
      case Kind::relu:
        return kernels::relu(a_, made_, count_);
      case Kind::sigmoid:
        return kernels::sigmoid(a_, made_, count_);
      case Kind::relu_mask:
        return kernels::relu_mask(a_, b_, made_, count_);
      case Kind::sigmoid_gradient:
        return kernels::sigmoid_gradient(a_, b_, made_, count_);
      default:
        return kernels::add(a_, b_, made_, count_);
    }
  }

 private:
  Kind kind_;
  std::size_t count_ = 0;
  const float *a_ = nullptr, *b_ = nullptr;
  float* made_ = nullptr;
};

class StridedAdd final : public Prepared {
 public:
  explicit StridedAdd(const Node& node)
      : a_(node.reads[0]), b_(node.reads[1]), sum_(node.writes[0]) {
    info.name = "add of other strides";
    info.kernel = capture::kLibTorch;
  }
  void bind(const Node&, char*) override {}
  void run() override { at::add_out(sum_, a_, b_); }

 private:
  at::Tensor a_, b_, sum_;
};

class MeanSquaredError final : public Prepared {
 public:
  explicit MeanSquaredError(const Node& node)
      : gradient_(node.kind == Kind::mse_gradient),
        through_sigmoid_(node.through_sigmoid),
        layout_(layout_of(node.reads[gradient_ ? 1 : 0])) {
    info.name = gradient_ ? "mean squared error's gradient" : "mean squared error";
    info.kernel = kernels::instruction_set();
  }
  void bind(const Node& node, char*) override {
    const std::size_t first = gradient_ ? 1 : 0;
    scale_ = gradient_ ? floats(node.reads[0]) : nullptr;
    prediction_ = floats(node.reads[first]);
    target_ = floats(node.reads[first + 1]);
    made_ = floats(node.writes[0]);
  }
  void run() override {
    if (gradient_) {
      kernels::mse(prediction_, layout_, target_, layout_, made_, layout_, through_sigmoid_,
                   *scale_);
    } else {
      *made_ = kernels::mse(prediction_, layout_, target_, layout_, nullptr, layout_, false);
    }
  }

 private:
  bool gradient_, through_sigmoid_;
  kernels::Layout layout_;
  const float *scale_ = nullptr, *prediction_ = nullptr, *target_ = nullptr;
  float* made_ = nullptr;
};

class GroupNorm final : public Prepared {
 public:
  explicit GroupNorm(const Node& node) : gradient_(node.kind == Kind::group_norm_gradient) {
    const at::Tensor& source = node.reads[gradient_ ? 1 : 0];
    const auto& arguments = node.call->arguments;
    norm_ = {.pixels = std::size_t(source.size(2) * source.size(3)),
             .channels = int(source.size(1)),
             .groups = int(arguments[gradient_ ? 8 : 6].toInt()),
             .eps = gradient_ ? 0 : arguments[7].toDouble()};
    info.name = (norm_.groups == norm_.channels ? "instance norm " : "group norm ") +
                text_of(layout_of(source)) + (gradient_ ? " gradient" : "");
    info.kernel = kernels::instruction_set();
  }
  std::size_t scratch_bytes() const override { return norm_.scratch() * sizeof(double); }
  void bind(const Node& node, char* scratch) override {
    const std::size_t first = gradient_ ? 1 : 0;
    if (gradient_) dy_ = floats(node.reads[0]);
    x_ = floats(node.reads[first]);
    weight_ = floats(node.reads[gradient_ ? 4 : 1]);
    bias_ = gradient_ ? nullptr : floats(node.reads[2]);
    mean_ = floats(gradient_ ? node.reads[2] : node.writes[1]);
    rstd_ = floats(gradient_ ? node.reads[3] : node.writes[2]);
    made_ = floats(node.writes[0]);
    if (gradient_) to_ = {made_, floats(node.writes[1]), floats(node.writes[2])};
    scratch_ = reinterpret_cast<double*>(scratch);
  }
  void run() override {
    if (gradient_) {
      kernels::group_norm_gradient(norm_, dy_, x_, mean_, rstd_, weight_, to_, scratch_);
    } else {
      kernels::group_norm(norm_, x_, weight_, bias_, made_, mean_, rstd_, scratch_);
    }
  }

 private:
  const bool gradient_;
  kernels::GroupNorm norm_;
  const float *dy_ = nullptr, *x_ = nullptr, *weight_ = nullptr, *bias_ = nullptr;
  float *mean_ = nullptr, *rstd_ = nullptr, *made_ = nullptr;
  kernels::GroupNormGradients to_;
  double* scratch_ = nullptr;
};

/// millrace::check_and_update in one pass.
class Update final : public Prepared {
 public:
  explicit Update(const Node& node) {
    const auto& arguments = node.call->arguments;
    const stages::OptimizerSpec spec =
        stages::spec_of(arguments[5].toStringRef(), arguments[6].toDoubleVector());
    numbers_ = stages::update_numbers(spec, int(arguments[7].toInt()));
    for (const c10::IValue& name : arguments[4].toListRef()) names_.push_back(name.toStringRef());
    info.name = "update by " + spec.kind;
    info.kernel = kernels::instruction_set();
  }
  void bind(const Node& node, char*) override {
    stages::NamedTensors state;
    for (std::size_t i = 0; i < names_.size(); ++i)
      state.emplace_back(names_[i], node.writes[3 + i]);
    operands_ = {.from = floats(node.reads[0]),
                 .to = floats(node.writes[2]),
                 .gradient = floats(node.reads[1]),
                 .state = stages::state_of(state),
                 .count = std::size_t(node.reads[0].numel())};
    rate_ = static_cast<const double*>(node.reads[2].const_data_ptr());
    finite_ = static_cast<bool*>(node.writes[0].data_ptr());
    skipped_ = floats(node.writes[1]);
  }
  void run() override {
    *finite_ = kernels::guarded_update(numbers_, operands_, *rate_);
    if (!*finite_) *skipped_ += 1;
  }

 private:
  stages::UpdateNumbers numbers_;
  kernels::UpdateOperands operands_;
  std::vector<std::string> names_;
  const double* rate_ = nullptr;
  bool* finite_ = nullptr;
  float* skipped_ = nullptr;
};

class Copy final : public Prepared {
 public:
  explicit Copy(const Node& node) : from_(node.reads[0]), to_(node.writes[0]) {
    info.name = "copy";
    info.kernel = kernels::instruction_set();
    if (lie_alike(from_, to_)) {
      run_ = &Copy::as_it_lies;
    } else if (is_image(to_) && from_.is_contiguous()) {
      run_ = &Copy::from_planes;
      info.name = "copy of planes to pixels";
    } else if (is_image(from_) && to_.is_contiguous()) {
      run_ = &Copy::to_planes;
      info.name = "copy of pixels to planes";
    } else {
      run_ = &Copy::strided;
      info.kernel = capture::kLibTorch;
    }
  }
  void bind(const Node&, char*) override {
    source_ = floats(from_);
    made_ = floats(to_);
  }
  void run() override { (this->*run_)(); }

 private:
  void as_it_lies() { std::memcpy(made_, source_, from_.nbytes()); }
  void from_planes() { kernels::from_planes(source_, made_, layout_of(to_)); }
  void to_planes() { kernels::to_planes(source_, layout_of(from_), made_); }
  void strided() { to_.copy_(from_); }

  at::Tensor from_, to_;
  const float* source_ = nullptr;
  float* made_ = nullptr;
  void (Copy::*run_)() = nullptr;
};

}  // namespace

std::unique_ptr<Prepared> prepare(const Node& node) {
  switch (node.kind) {
    case Kind::torch:
      return std::make_unique<TorchOperation>(*node.call);
    case Kind::convolution:
    case Kind::data_gradient:
    case Kind::weight_gradient:
      return std::make_unique<ConvolutionOperation>(node);
    case Kind::relu:
    case Kind::sigmoid:
    case Kind::relu_mask:
    case Kind::sigmoid_gradient:
      return std::make_unique<Elementwise>(node);
    case Kind::add:
      if (!lie_alike(node.reads[0], node.reads[1])) return std::make_unique<StridedAdd>(node);
      return std::make_unique<Elementwise>(node);
    case Kind::mse:
    case Kind::mse_gradient:
      return std::make_unique<MeanSquaredError>(node);
    case Kind::group_norm:
    case Kind::group_norm_gradient:
      return std::make_unique<GroupNorm>(node);
    case Kind::copy:
      return std::make_unique<Copy>(node);
    case Kind::update:
      return std::make_unique<Update>(node);
  }
  throw std::logic_error("a node of no kind");
}

}  // namespace millrace::program
