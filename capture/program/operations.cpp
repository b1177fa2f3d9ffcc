#include "capture/program/operations.h"

#include <ATen/ATen.h>  // operators as they were

#include <algorithm>  // all_of
#include <cstring>    // memcpy
#include <stdexcept>  // std::logic_error

#include "capture/program/kernels/channels.h"
#include "capture/program/kernels/norm.h"
#include "stages/guarded_update.h"
#include "stages/tensor_split.h"

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
  }
  void bind(const Node&, char*) override {}
  void run(int, kernels::Share) override {
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
  /// Leaves `made` where the recorded call left its result. What the recorded one was not asked
  /// for, an operator may give all the same.
  void keep(at::Tensor recorded, const at::Tensor& made) const {
    if (!recorded.defined() || recorded.const_data_ptr() == made.const_data_ptr()) return;
    if (!made.defined() || recorded.sizes() != made.sizes())
      throw std::logic_error(info.name + " gives another shape than when it was recorded");
    recorded.copy_(made);
  }
  const Call call_;
  torch::jit::Stack stack_;
};

class ConvolutionOperation final : public Prepared {
 public:
  ConvolutionOperation(const Node& node, int threads)
      : kernel_(kernels::make_kernel(node.convolution)),
        threads_(threads),
        packed_(rounded(kernel_->packed_floats())),
        scratch_(rounded(kernel_->scratch_floats())) {
    info.name = describe(node.convolution);
    info.kernel = kernel_->name();
    info.flops = kernels::flops(node.convolution);
  }
  std::size_t scratch_bytes() const override {
    return (std::size_t(threads_) * (packed_ + scratch_) + kernel_->shared_floats(threads_)) *
           sizeof(float);
  }
  void bind(const Node& node, char* scratch) override {
    memory_ = reinterpret_cast<float*>(scratch);
    operands_.shared = memory_ + std::size_t(threads_) * (packed_ + scratch_);
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
  std::vector<bool> phases() const override {
    return std::vector<bool>(std::size_t(kernel_->phases(threads_)), true);
  }
  void run(int phase, kernels::Share share) override {
    float* const packed = memory_ + std::size_t(share.index) * (packed_ + scratch_);
    kernels::Operands operands = operands_;
    operands.packed = packed_ > 0 ? packed : weights_;
    operands.scratch = packed + packed_;
    if (packed_ > 0) kernel_->pack(weights_, packed, share);
    kernel_->run(operands, phase, share);
  }

 private:
  static std::size_t rounded(std::size_t floats) { return (floats + 15) / 16 * 16; }

  std::unique_ptr<kernels::Kernel> kernel_;
  const int threads_;
  const std::size_t packed_, scratch_;  ///< floats of a thread
  kernels::Operands operands_;
  const float* weights_ = nullptr;
  float* memory_ = nullptr;
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
  std::vector<bool> phases() const override { return {true}; }
  void run(int, kernels::Share share) override {
    const auto [begin, end] = share.of(count_, 16);
    const float* const a = a_ + begin;
    float* const made = made_ + begin;
    switch (kind_) {
      case Kind::relu:
        return kernels::relu(a, made, end - begin);
      case Kind::sigmoid:
        return kernels::sigmoid(a, made, end - begin);
      case Kind::relu_mask:
        return kernels::relu_mask(a, b_ + begin, made, end - begin);
      case Kind::sigmoid_gradient:
        return kernels::sigmoid_gradient(a, b_ + begin, made, end - begin);
      default:
        return kernels::add(a, b_ + begin, made, end - begin);
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
  void run(int, kernels::Share) override { at::add_out(sum_, a_, b_); }

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
  void run(int, kernels::Share) override {
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
    const auto& reads = node.reads;
    const auto& writes = node.writes;
    operands_.destination = floats(writes[0]);
    operands_.scratch = reinterpret_cast<double*>(scratch);
    if (gradient_) {
      operands_.gradient = floats(reads[0]);
      operands_.source = floats(reads[1]);
      operands_.mean = floats(reads[2]);
      operands_.rstd = floats(reads[3]);
      operands_.weight = floats(reads[4]);
      operands_.weight_gradient = floats(writes[1]);
      operands_.bias_gradient = floats(writes[2]);
    } else {
      operands_.source = floats(reads[0]);
      operands_.weight = floats(reads[1]);
      operands_.bias = floats(reads[2]);
      operands_.mean = floats(writes[1]);
      operands_.rstd = floats(writes[2]);
    }
  }
  std::vector<bool> phases() const override { return {true, false, true}; }
  void run(int phase, kernels::Share share) override {
    gradient_ ? kernels::group_norm_gradient(norm_, operands_, phase, share)
              : kernels::group_norm(norm_, operands_, phase, share);
  }

 private:
  const bool gradient_;
  kernels::GroupNorm norm_;
  kernels::GroupNormOperands operands_;
};

/// millrace::check_and_update in one pass.
class Update final : public Prepared {
 public:
  Update(const Node& node, int threads) : all_finite_(std::size_t(threads)) {
    const auto& arguments = node.call->arguments;
    const stages::OptimizerSpec spec =
        stages::spec_of(arguments[5].toStringRef(), arguments[6].toDoubleVector());
    const stages::CorrectionNumbers correction =
        stages::correction_of(arguments[8].toDoubleVector());
    numbers_ = stages::update_numbers(spec, int(arguments[9].toInt()), correction);
    for (const c10::IValue& name : arguments[4].toListRef()) names_.push_back(name.toStringRef());
    count_ = std::size_t(node.reads[0].numel());
    info.name = "update by " + spec.kind;
    if (correction.rule != stages::CorrectionRule::none)
      info.name += ", " + stages::correction_kind(correction.rule).name;
    info.kernel = kernels::instruction_set();
  }
  std::size_t scratch_bytes() const override {
    return kernels::update_sums(numbers_, count_) * sizeof(double);
  }
  void bind(const Node& node, char* scratch) override {
    stages::NamedTensors state;
    auto next = node.writes.begin() + 3;
    for (const std::string& name : names_) state.emplace_back(name, *next++);
    operands_ = {.from = floats(node.reads[0]),
                 .to = floats(node.writes[2]),
                 .gradient = floats(node.reads[1]),
                 .state = stages::state_of(state),
                 .memory = stages::memory_of(numbers_.correction.rule, {next, node.writes.end()}),
                 .sums = reinterpret_cast<double*>(scratch),
                 .count = count_};
    rate_ = static_cast<const double*>(node.reads[2].const_data_ptr());
    if (node.reads[3].defined()) given_ = static_cast<const bool*>(node.reads[3].const_data_ptr());
    finite_ = static_cast<bool*>(node.writes[0].data_ptr());
    skipped_ = floats(node.writes[1]);
  }
  std::vector<bool> phases() const override { return {true, true, false}; }
  void run(int phase, kernels::Share share) override {
    if (phase == 0) {
      all_finite_[std::size_t(share.index)].value =
          given_ ? *given_ : kernels::is_finite(operands_, share);
      return;
    }
    const bool finite = std::all_of(all_finite_.begin(), all_finite_.end(),
                                    [](const Finite& part) { return part.value; });
    if (phase == 1) {
      finite ? kernels::update(numbers_, operands_, *rate_, share)
             : kernels::keep(operands_, share);
      return;
    }
    *finite_ = finite;
    if (finite) {
      kernels::count_step(numbers_, operands_);
    } else if (!given_) {
      *skipped_ += 1;
    }
  }

 private:
  /// What a thread found, on a line of its own.
  struct alignas(64) Finite {
    bool value = true;
  };
  std::vector<Finite> all_finite_;
  stages::UpdateNumbers numbers_;
  kernels::UpdateOperands operands_;
  std::vector<std::string> names_;
  std::size_t count_ = 0;
  const double* rate_ = nullptr;
  const bool* given_ = nullptr;  ///< null: whether the gradient is finite
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
  void run(int, kernels::Share) override { (this->*run_)(); }

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

/// millrace::add_up. Whoever shares the modules runs the same programs.
class AddUp final : public Prepared {
 public:
  explicit AddUp(const Node& node)
      : reducer_(*reinterpret_cast<stages::Reducer*>(node.call->arguments[1].toInt())),
        place_(int(node.call->arguments[2].toInt())),
        count_(std::size_t(node.writes[0].numel())) {
    info.name = "sum over ranks " + text_of(layout_of(node.writes[0]));
    info.kernel = "ranks";
  }
  void bind(const Node& node, char*) override {
    part_ = floats(node.reads[0]);
    sum_ = floats(node.writes[0]);
  }
  void run(int, kernels::Share) override {
    std::memcpy(sum_, part_, count_ * sizeof(float));
    reducer_.add_up({sum_, count_}, place_);
  }

 private:
  stages::Reducer& reducer_;
  const int place_;
  const std::size_t count_;
  const float* part_ = nullptr;
  float* sum_ = nullptr;
};

class AddToChannels final : public Prepared {
 public:
  explicit AddToChannels(const Node& node)
      : layout_(layout_of(node.writes[0])), activation_(node.activation) {
    info.name = "add to channels of " + text_of(layout_);
    if (activation_ == kernels::Activation::kRelu) info.name += " relu";
    if (activation_ == kernels::Activation::kSigmoid) info.name += " sigmoid";
    info.kernel = kernels::instruction_set();
  }
  void bind(const Node& node, char*) override {
    source_ = floats(node.reads[0]);
    added_ = floats(node.reads[1]);
    made_ = floats(node.writes[0]);
  }
  std::vector<bool> phases() const override { return {true}; }
  void run(int, kernels::Share share) override {
    kernels::add_to_channels(layout_, source_, added_, activation_, made_, share);
  }

 private:
  const kernels::Layout layout_;
  const kernels::Activation activation_;
  const float *source_ = nullptr, *added_ = nullptr;
  float* made_ = nullptr;
};

class ChannelSums final : public Prepared {
 public:
  explicit ChannelSums(const Node& node) : layout_(layout_of(node.reads[0])) {
    info.name = "channel sums of " + text_of(layout_);
    info.kernel = kernels::instruction_set();
  }
  void bind(const Node& node, char*) override {
    source_ = floats(node.reads[0]);
    sums_ = floats(node.writes[0]);
  }
  std::vector<bool> phases() const override { return {true}; }
  void run(int, kernels::Share share) override {
    kernels::channel_sums(layout_, source_, sums_, share);
  }

 private:
  const kernels::Layout layout_;
  const float* source_ = nullptr;
  float* sums_ = nullptr;
};

}  // namespace

std::unique_ptr<Prepared> prepare(const Node& node, int threads) {
  switch (node.kind) {
    case Kind::torch:
      return std::make_unique<TorchOperation>(*node.call);
    case Kind::convolution:
    case Kind::data_gradient:
    case Kind::weight_gradient:
      return std::make_unique<ConvolutionOperation>(node, threads);
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
      return std::make_unique<Update>(node, threads);
    case Kind::add_up:
      return std::make_unique<AddUp>(node);
    case Kind::add_to_channels:
      return std::make_unique<AddToChannels>(node);
    case Kind::channel_sums:
      return std::make_unique<ChannelSums>(node);
  }
  throw std::logic_error("a node of no kind");
}

}  // namespace millrace::program
