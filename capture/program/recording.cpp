#include "capture/program/recording.h"

#include <ATen/ATen.h>
#include <ATen/native/ConvUtils.h>              // sizes
#include <c10/core/impl/LocalDispatchKeySet.h>  // switches recording on and off
#include <c10/util/ScopeExit.h>
#include <torch/library.h>

#include <set>
#include <stdexcept>
#include <string>

#include "capture/one_thread.h"

namespace millrace::program {
namespace {

/// Below autograd, so that what autograd saves is the result of a recorded call, and above every
/// backend. LibTorch doesn't use this key itself.
constexpr c10::DispatchKey kRecording = c10::DispatchKey::Fake;

thread_local std::vector<Call>* recording = nullptr;

/// Detached, so that a recording doesn't keep autograd's graph alive.
at::Tensor bare(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.variable_data() : tensor;
}

c10::IValue bare(const c10::IValue& value) {
  if (value.isTensor()) return bare(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(bare(tensor));
  return list;
}

at::Tensor zeros(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options().memory_format(like.suggest_memory_format())).zero_();
}

/// convolution(input, weight, bias?, stride, padding, dilation, transposed, output_padding, groups)
bool make_up_convolution(torch::jit::Stack& stack) {
  const auto argument = [&](std::size_t i) { return stack[stack.size() - 9 + i]; };
  const at::Tensor input = argument(0).toTensor(), weight = argument(1).toTensor();
  const std::vector<std::int64_t> stride = argument(3).toIntVector(),
                                  padding = argument(4).toIntVector(),
                                  dilation = argument(5).toIntVector();
  if (input.dim() != 4 || stride.size() != 2 || argument(6).toBool()) return false;
  torch::jit::drop(stack, 9);
  torch::jit::push(stack, zeros(at::native::conv_output_size(input.sizes(), weight.sizes(), padding,
                                                             stride, dilation),
                                input));
  return true;
}

/// convolution_backward(gradient, input, weight, bias_sizes?, stride, ..., output_mask)
void make_up_convolution_backward(torch::jit::Stack& stack) {
  const auto argument = [&](std::size_t i) { return stack[stack.size() - 11 + i]; };
  const at::Tensor input = argument(1).toTensor(), weight = argument(2).toTensor();
  const c10::IValue bias = argument(3);
  const c10::List<bool> wanted = argument(10).toBoolList();
  torch::jit::drop(stack, 11);
  torch::jit::push(stack, wanted.get(0) ? zeros(input.sizes(), input) : at::Tensor(),
                   wanted.get(1) ? zeros(weight.sizes(), weight) : at::Tensor(),
                   wanted.get(2) ? at::zeros(bias.toIntVector(), weight.options()) : at::Tensor());
}

/// native_group_norm_backward(gradient, input, mean, rstd, weight?, N, C, HxW, group, output_mask).
/// LibTorch 2.11's would write an input gradient that is not wanted to a null address.
void make_up_group_norm_backward(torch::jit::Stack& stack) {
  const auto argument = [&](std::size_t i) { return stack[stack.size() - 10 + i]; };
  const at::Tensor input = argument(1).toTensor();
  const std::int64_t channels = argument(6).toInt();
  const c10::List<bool> wanted = argument(9).toBoolList();
  torch::jit::drop(stack, 10);
  const auto of_channels = [&](bool is) {
    return is ? at::zeros({channels}, input.options()) : at::Tensor();
  };
  torch::jit::push(stack, wanted.get(0) ? zeros(input.sizes(), input) : at::Tensor(),
                   of_channels(wanted.get(1)), of_channels(wanted.get(2)));
}

/// check_and_update(weights, to, ...) with a rejected gradient: a pass over all weights is slow.
void make_up_update(torch::jit::Stack& stack, std::size_t arguments) {
  const at::Tensor from = stack[stack.size() - arguments].toTensor();
  at::Tensor to = stack[stack.size() - arguments + 1].toTensor();
  if (to.const_data_ptr() != from.const_data_ptr()) to.copy_(from);
  torch::jit::drop(stack, arguments);
  torch::jit::push(stack, at::zeros({}, from.options().dtype(at::kBool)));
}

/// add_up(part, reducer, place): a recording doesn't involve the other ranks.
void make_up_sum(torch::jit::Stack& stack) {
  const at::Tensor part = stack[stack.size() - 3].toTensor();
  torch::jit::drop(stack, 3);
  torch::jit::push(stack, zeros(part.sizes(), part));
}

/// Runs the operator, or returns values that suffice for a recording.
void run_once(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  const std::string& name = operation.schema().name();
  if (name == "aten::convolution" && make_up_convolution(*stack)) return;
  if (name == "aten::convolution_backward") return make_up_convolution_backward(*stack);
  if (name == "aten::native_group_norm_backward") return make_up_group_norm_backward(*stack);
  if (name == "millrace::check_and_update")
    return make_up_update(*stack, operation.schema().arguments().size());
  if (name == "millrace::add_up") return make_up_sum(*stack);
  operation.callBoxed(*stack);
}

/// Whether nothing can change the number before a replay: neither a recorded call nor anyone else
/// holds it, as a size that TorchScript turned into a tensor.
bool is_fixed(const c10::IValue& number) {
  return number.isTensor() && number.toTensor().is_cpu() &&
         number.toTensor().storage().use_count() == 1;
}

void record(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  static const std::set<std::string> asking = {"aten::item", "aten::_local_scalar_dense",
                                               "aten::equal", "aten::is_nonzero", "aten::nonzero"};
  const std::string& name = operation.schema().name();
  const auto arguments = std::ptrdiff_t(operation.schema().arguments().size());
  const c10::impl::ExcludeDispatchKeyGuard once(kRecording);
  if (asking.count(name) > 0) {
    if (arguments == 1 && is_fixed(stack->back())) return operation.callBoxed(*stack);
    throw std::runtime_error(name + " is not permitted while recording");
  }
  if (!recording) return run_once(operation, stack);
  Call call{operation, {}, {}, capture::KeptIn::current()};
  for (auto at = stack->end() - arguments; at != stack->end(); ++at)
    call.arguments.push_back(bare(*at));
  const auto below = std::ptrdiff_t(stack->size()) - arguments;
  run_once(operation, stack);
  for (auto at = stack->begin() + below; at != stack->end(); ++at)
    call.results.push_back(bare(*at));
  recording->push_back(std::move(call));
}

}  // namespace

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&record>());
}

std::vector<Call> record_calls(const std::function<void()>& body) {
  std::vector<Call> calls;
  recording = &calls;
  const auto stop = c10::make_scope_exit([] { recording = nullptr; });
  run_dry(body);
  return calls;
}

void run_dry(const std::function<void()>& body) {
  const c10::impl::IncludeDispatchKeyGuard on(kRecording);
  const auto alone = capture::on_one_thread();
  body();
}

}  // namespace millrace::program
