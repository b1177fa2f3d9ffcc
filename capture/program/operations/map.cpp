// Element-wise functions of one or two operands, either of which may be broadcast: {x[, y]} ->
// {made}. kernels/functions-inl.h lists them.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

using kernels::Function;

Operation operation_of(const kernels::Map& map) {
  const auto call = [map](const Addresses& at, kernels::Share share) {
    kernels::map(map, at.reads[0], at.reads[1], at.writes[0], share);
  };
  const std::string function = "(millrace::kernels::Function)" + numbers(int(map.function));
  return {.name = kernels::name_of(map.function),
          .on_cores = by_team(call),
          .on_gpu = gpu_map("Mapped<" + function + ">", map),
          .attributes = map};
}

using Dimensions = std::span<const std::int64_t>;

std::int64_t elements(const at::Tensor& tensor, Dimensions dimensions) {
  std::int64_t count = 1;
  for (const std::int64_t d : dimensions) count *= tensor.size(d);
  return count;
}
/// The stride between elements along `dimensions`, if they can be merged into one.
std::optional<std::int64_t> step(const at::Tensor& tensor, Dimensions dimensions) {
  for (std::size_t i = 0; i + 1 < dimensions.size(); ++i) {
    const std::int64_t d = dimensions[i], next = dimensions[i + 1];
    if (tensor.stride(d) != tensor.stride(next) * tensor.size(next)) return {};
  }
  return dimensions.empty() ? 0 : tensor.stride(dimensions.back());
}

/// Splits the elements of `made` into rows so that each operand, broadcast to `made`, has one
/// stride between rows and one, 0 or 1, within a row. False if that is impossible.
bool in_rows(const at::Tensor& made, const std::vector<at::Tensor>& operands, kernels::Map& map) {
  const std::vector<std::int64_t> order = by_stride(made);
  for (std::size_t split = 0; split <= order.size(); ++split) {
    const Dimensions outer = Dimensions(order).first(split),
                     inner = Dimensions(order).subspan(split);
    kernels::Operand found[2];
    const auto fits = [&](std::size_t i) {
      const at::Tensor spread = operands[i].expand(made.sizes());
      const std::optional<std::int64_t> row = step(spread, outer), each = step(spread, inner);
      if (!row || !each || *each < 0 || *each > 1) return false;
      found[i] = {std::size_t(*row), *each == 1};
      return true;
    };
    bool all = true;
    for (std::size_t i = 0; i < operands.size(); ++i) all = all && fits(i);
    if (!all) continue;
    map.rows = std::size_t(elements(made, outer));
    map.row = std::size_t(elements(made, inner));
    map.left = found[0];
    map.right = found[1];
    return true;
  }
  return false;
}

/// A number becomes a one-element operand.
at::Tensor operand(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::scalar_tensor(value.toScalar(), at::kFloat);
}

/// A function of the arguments `operands`, with the arguments `numbers` as parameters.
Rule mapped(Function function, std::vector<std::size_t> operands,
            std::vector<std::size_t> numbers = {}) {
  const auto apply = [=](Lowering& lower, const Call& call) {
    std::vector<at::Tensor> tensors;
    for (const std::size_t i : operands) tensors.push_back(operand(call.arguments[i]));
    kernels::Map map{.function = function};
    for (std::size_t i = 0; i < numbers.size(); ++i)
      map.numbers[i] = float(call.arguments[numbers[i]].toScalar().toDouble());
    return lower_map(lower, map, std::move(tensors), result(call));
  };
  return {apply};
}

// threshold_backward(gradient, made, threshold)
bool threshold_backward(Lowering& lower, const Call& call) {
  return call.arguments[2].toScalar().toDouble() == 0 &&
         mapped(Function::relu_gradient, {0, 1}).lower(lower, call);
}

// add(a, b, alpha), sub alike
Rule sum(Function function) {
  const auto apply = [rule = mapped(function, {0, 1})](Lowering& lower, const Call& call) {
    return call.arguments[2].toScalar().toDouble() == 1 && rule.lower(lower, call);
  };
  return {apply};
}

// div(a, b[, rounding mode])
bool division(Lowering& lower, const Call& call) {
  return call.arguments.size() == 2 && mapped(Function::divide, {0, 1}).lower(lower, call);
}

// gelu(x, approximate), gelu_backward(gradient, x, approximate)
Rule gelu(Function function, Function by_tanh, std::vector<std::size_t> operands) {
  const std::size_t how = operands.size();
  const auto apply = [exact = mapped(function, operands), approximate = mapped(by_tanh, operands),
                      how](Lowering& lower, const Call& call) {
    return (call.arguments[how].toStringRef() == "tanh" ? approximate : exact).lower(lower, call);
  };
  return {apply};
}

// elu_backward(gradient, alpha, scale, input_scale, is_result, given or made)
bool elu_backward(Lowering& lower, const Call& call) {
  const bool of_result = call.arguments[4].toBool();
  return mapped(of_result ? Function::elu_result_gradient : Function::elu_gradient, {0, 5},
                {1, 2, 3})
      .lower(lower, call);
}

/// The GPU's kernels take strided operands, and numbers from the host.
bool spread_on_gpu(Lowering& lower, const kernels::Map& map, std::vector<at::Tensor> operands,
                   const at::Tensor& made) {
  for (const at::Tensor& operand : operands) {
    const bool number = operand.is_cpu() && operand.dim() == 0;
    if (!number && (operand.scalar_type() != at::kFloat || operand.device() != made.device() ||
                    !at::is_expandable_to(operand.sizes(), made.sizes())))
      return false;
  }
  if (made.dim() > gpu::kMostDimensions) return false;
  const at::Tensor to = is_picture(made) ? lower.image_for(made) : made;
  for (at::Tensor& operand : operands) {
    if (is_picture(operand) && lower.has_image(operand)) operand = lower.read(operand);
  }
  lower.add(operation_of(map), std::move(operands), {to});
  return lower.written(made, to);
}

}  // namespace

bool lower_map(Lowering& lower, kernels::Map map, std::vector<at::Tensor> operands,
               const at::Tensor& made) {
  if (!is_dense(made) || made.numel() == 0) return false;
  if (lower.on_gpu()) return spread_on_gpu(lower, map, std::move(operands), made);
  std::vector<at::Tensor> wide, narrow;  // of `made`'s size, and smaller
  for (const at::Tensor& operand : operands) {
    if (!is_copyable(operand) || operand.device() != made.device() ||
        !at::is_expandable_to(operand.sizes(), made.sizes()))
      return false;
    (operand.sizes() == made.sizes() ? wide : narrow).push_back(operand);
  }
  const auto lies_well = [&](const at::Tensor& operand) {
    return lie_alike(operand, made) && !lower.has_image(operand);
  };
  const bool as_it_lies =
      std::all_of(wide.begin(), wide.end(), lies_well) && (!wide.empty() || !is_picture(made));
  const at::Tensor to = as_it_lies || !is_picture(made) ? made : lower.image_for(made);
  if (kernels::Map any; !narrow.empty() && !in_rows(to, narrow, any)) return false;
  for (at::Tensor& operand : operands) {
    if (operand.sizes() != made.sizes() || lie_alike(operand, to)) continue;
    if (is_picture(made)) {
      operand = lower.read(operand);
    } else {
      const at::Tensor alike = lower.own(made);
      lower.copy(operand, alike);
      operand = alike;
    }
  }
  if (!in_rows(to, operands, map)) map.row = std::size_t(to.numel());  // all in the same order
  lower.add(operation_of(map), std::move(operands), {to});
  return lower.written(made, to);
}

namespace {

Rules functions() {
  Rules rules = {
      {"aten::add", sum(Function::add)},
      {"aten::sub", sum(Function::subtract)},
      {"aten::div", {division}},
      {"aten::threshold_backward", {threshold_backward}},
      {"aten::gelu", gelu(Function::gelu, Function::gelu_tanh, {0})},
      {"aten::gelu_backward", gelu(Function::gelu_gradient, Function::gelu_tanh_gradient, {0, 1})},
      {"aten::elu_backward", {elu_backward}},
  };
  const auto add = [&](Function function, const char* aten, std::size_t operands,
                       std::size_t parameters) {
    if (!aten) return;
    std::vector<std::size_t> all(operands + parameters);
    std::iota(all.begin(), all.end(), 0);
    const auto first = all.begin() + std::ptrdiff_t(operands);
    rules.emplace(aten, mapped(function, {all.begin(), first}, {first, all.end()}));
  };
#define FUNCTION(enumerator, name, aten, operands, parameters, ...) \
  add(Function::enumerator, aten, operands, parameters);
#include "capture/program/kernels/functions-inl.h"
  return rules;
}

}  // namespace

const Rules map_rules = functions();

}  // namespace millrace::program
