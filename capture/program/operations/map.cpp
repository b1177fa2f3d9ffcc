// Element-wise functions of one or two operands, either of which may be broadcast: {x[, y]} ->
// {made}. kernels/functions-inl.h lists them.
#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <numeric>

#include "capture/program/lowering.h"

namespace millrace::program {
namespace {

using kernels::Function;

/// How `made` and the operands, each broadcast to it, lie: dimensions in `made`'s memory order,
/// merged where all allow.
kernels::MapArguments laid_out(const at::Tensor& made, const std::vector<at::Tensor>& operands) {
  kernels::MapArguments m{.count = int(made.numel())};
  std::vector<at::Tensor> tensors = {made};
  for (const at::Tensor& operand : operands) tensors.push_back(operand.expand(made.sizes()));
  int* const strides[] = {m.made_strides, m.left.strides, m.right.strides};
  for (const std::int64_t d : by_stride(made)) {
    const int size = int(made.size(d)), last = m.dimensions - 1;
    bool goes_on = last >= 0;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      goes_on = goes_on && strides[i][last] == int(tensors[i].stride(d)) * size;
    const int at = goes_on ? last : m.dimensions++;
    m.sizes[at] = goes_on ? m.sizes[at] * size : size;
    for (std::size_t i = 0; i < tensors.size(); ++i) strides[i][at] = int(tensors[i].stride(d));
  }
  if (m.dimensions > 0) return m;
  m.dimensions = m.sizes[0] = m.made_strides[0] = m.left.strides[0] = m.right.strides[0] = 1;
  return m;
}

/// A number on the host is passed by value to a GPU.
void point(kernels::Spread& to, const Node& node, std::size_t operand) {
  if (operand >= node.reads.size()) return;
  const at::Tensor& tensor = node.reads[operand];
  if (tensor.is_cpu() && node.writes[0].is_cuda()) {
    to.number = tensor.item().toFloat();
  } else {
    to.at = floats(tensor);
  }
}
/// Whether its elements can be taken in aligned fours, or are all the same.
bool in_fours(const kernels::MapArguments& m, const float* first, const int* strides) {
  const int last = m.dimensions - 1;
  return m.sizes[last] % 4 == 0 && strides[last] <= 1 && holds_fours(first) &&
         std::all_of(strides, strides + last, [](int s) { return s % 4 == 0; });
}

/// A number becomes a one-element operand.
at::Tensor operand(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor() : at::scalar_tensor(value.toScalar(), at::kFloat);
}

/// A number of another type on a core, as a float; `operand` itself if it is none.
at::Tensor as_float(Lowering& lower, const at::Tensor& operand) {
  const at::ScalarType type = operand.scalar_type();
  if (operand.dim() > 0 || !operand.is_cpu() || (type != at::kDouble && type != at::kLong))
    return operand;
  const at::Tensor made = lower.own(at::scalar_tensor(0, at::kFloat));
  const auto bind = [](const Node& n, char*) {
    return std::pair(n.reads[0].const_data_ptr(), floats(n.writes[0]));
  };
  const auto convert = [type](const auto& at) {
    *at.second = type == at::kDouble ? float(*static_cast<const double*>(at.first))
                                     : float(*static_cast<const std::int64_t*>(at.first));
  };
  lower.add({.name = "number", .on_cores = by_one(bind, convert)}, {operand}, {made});
  return made;
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

// add(a, b, alpha), and sub, with the opposite sign of alpha
Rule sum(Function function, float sign) {
  const auto apply = [rule = mapped(function, {0, 1}), sign](Lowering& lower, const Call& call) {
    const double alpha = call.arguments[2].toScalar().toDouble();
    if (alpha == 1) return rule.lower(lower, call);
    return lower_map(lower, {.function = Function::add_scaled, .numbers = {sign * float(alpha)}},
                     {operand(call.arguments[0]), operand(call.arguments[1])}, result(call));
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

/// Its kernels take operands of any strides, and numbers from the host.
bool lower_map_on_gpu(Lowering& lower, const kernels::Map& map, std::vector<at::Tensor> operands,
                      const at::Tensor& made) {
  for (const at::Tensor& operand : operands) {
    if (operand.is_cpu() && operand.dim() == 0) continue;
    if (!is_copyable(operand) || operand.device() != made.device() ||
        !at::is_expandable_to(operand.sizes(), made.sizes()))
      return false;
  }
  const at::Tensor to = is_picture(made) ? lower.image_for(made) : made;
  for (at::Tensor& operand : operands) {
    if (is_picture(operand) && lower.has_image(operand)) operand = lower.read(operand);
  }
  lower.add(operation_of(map), std::move(operands), {to});
  return lower.written(made, to);
}

Rules functions() {
  Rules rules = {
      {"aten::add", sum(Function::add, 1)},
      {"aten::sub", sum(Function::subtract, -1)},
      {"aten::div", {division}},
      {"aten::sqrt", mapped(Function::square_root, {0})},
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

kernels::MapArguments bind_map(const Node& node, const kernels::Map& map) {
  kernels::MapArguments m = laid_out(node.writes[0], node.reads);
  m.map = map;
  point(m.left, node, 0);
  point(m.right, node, 1);
  m.made = floats(node.writes[0]);
  return m;
}

Operation operation_of(const kernels::Map& map) {
  const auto bind = [map](const Node& n, char*) { return bind_map(n, map); };
  const auto on_gpu = [=](const Node& node) {
    const kernels::MapArguments m = bind_map(node, map);
    const auto fits = [&](const kernels::Spread& s) { return in_fours(m, s.at, s.strides); };
    const bool fours = in_fours(m, m.made, m.made_strides) && fits(m.left) && fits(m.right);
    const std::string function = "(millrace::kernels::Function)" + numbers(int(map.function));
    const int each = fours ? 4 : 1;
    return gpu_call({{"map<" + function + ", " + numbers(each) + ">", gpu::kThreads,
                      gpu::divided_up(m.count, gpu::kThreads * each)}},
                    bind)(node);
  };
  return {.name = kernels::name_of(map.function),
          .on_cores = by_team(bind, kernels::map),
          .on_gpu = on_gpu,
          .attributes = map};
}

bool lower_map(Lowering& lower, const kernels::Map& map, std::vector<at::Tensor> operands,
               const at::Tensor& made) {
  if (!is_dense(made) || made.numel() == 0 || made.dim() > kernels::kMostDimensions) return false;
  if (lower.on_gpu()) return lower_map_on_gpu(lower, map, std::move(operands), made);
  std::vector<at::Tensor> wide, narrow;  // of `made`'s size, and smaller
  for (at::Tensor& operand : operands) {
    operand = as_float(lower, operand);
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
  if (!narrow.empty()) {
    const kernels::MapArguments m = laid_out(to, narrow);
    if (m.left.strides[m.dimensions - 1] > 1 || m.right.strides[m.dimensions - 1] > 1) return false;
  }
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
  lower.add(operation_of(map), std::move(operands), {to});
  return lower.written(made, to);
}

const Rules map_rules = functions();

}  // namespace millrace::program
