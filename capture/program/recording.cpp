#include "capture/program/recording.h"

#include <ATen/ATen.h>
#include <ATen/native/ConvUtils.h>              // sizes
#include <c10/core/impl/LocalDispatchKeySet.h>  // switches recording on and off
#include <c10/util/ScopeExit.h>
#include <torch/library.h>

#include <map>
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

// Stand-ins for an operator's results, enough to record by; empty: the operator must run.

using Arguments = at::ArrayRef<c10::IValue>;
using MadeUp = std::vector<at::Tensor>;

/// Undefined unless it is wanted.
at::Tensor zeros(at::IntArrayRef sizes, const at::Tensor& like, bool wanted = true) {
  if (!wanted) return {};
  const at::MemoryFormat format = std::int64_t(sizes.size()) == like.dim()
                                      ? like.suggest_memory_format()
                                      : at::MemoryFormat::Contiguous;
  return at::empty(sizes, like.options().memory_format(format)).zero_();
}

/// convolution(input, weight, bias?, stride, padding, dilation, transposed, output_padding, groups)
MadeUp convolved(Arguments a) {
  const at::Tensor &input = a[0].toTensor(), &weight = a[1].toTensor();
  const std::vector<std::int64_t> stride = a[3].toIntVector();
  if (input.dim() != 4 || stride.size() != 2 || a[6].toBool()) return {};
  return {zeros(at::native::conv_output_size(input.sizes(), weight.sizes(), a[4].toIntVector(),
                                             stride, a[5].toIntVector()),
                input)};
}

/// convolution_backward(gradient, input, weight, bias_sizes?, stride, ..., output_mask)
MadeUp convolved_back(Arguments a) {
  const at::Tensor &input = a[1].toTensor(), &weight = a[2].toTensor();
  const c10::List<bool> wanted = a[10].toBoolList();
  return {zeros(input.sizes(), input, wanted[0]), zeros(weight.sizes(), weight, wanted[1]),
          wanted[2] ? zeros(a[3].toIntVector(), weight) : at::Tensor()};
}

/// native_group_norm_backward(gradient, input, mean, rstd, weight?, N, C, HxW, group, output_mask).
/// LibTorch 2.11's would write an input gradient that is not wanted to a null address.
MadeUp group_normed_back(Arguments a) {
  const at::Tensor& input = a[1].toTensor();
  const std::int64_t channels = a[6].toInt();
  const c10::List<bool> wanted = a[9].toBoolList();
  return {zeros(input.sizes(), input, wanted[0]), zeros({channels}, input, wanted[1]),
          zeros({channels}, input, wanted[2])};
}

/// check_and_update(weights, to, ...) with a rejected gradient: a pass over all weights is slow.
MadeUp updated(Arguments a) {
  const at::Tensor &from = a[0].toTensor(), &to = a[1].toTensor();
  if (to.const_data_ptr() != from.const_data_ptr()) to.copy_(from);
  return {at::zeros({}, from.options().dtype(at::kBool))};
}

/// add_up(part, reducer, place): a recording doesn't involve the other ranks.
MadeUp added_up(Arguments a) {
  return {zeros(a[0].toTensor().sizes(), a[0].toTensor())};
}

void run_once(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  static const std::map<std::string, MadeUp (*)(Arguments)> table = {
      {"aten::convolution", convolved},
      {"aten::convolution_backward", convolved_back},
      {"aten::native_group_norm_backward", group_normed_back},
      {"millrace::check_and_update", updated},
      {"millrace::add_up", added_up}};
  const std::size_t count = operation.schema().arguments().size();
  const auto found = table.find(operation.schema().name());
  const MadeUp made =
      found == table.end() ? MadeUp() : found->second(torch::jit::last(*stack, count));
  if (made.empty()) return operation.callBoxed(*stack);
  torch::jit::drop(*stack, count);
  stack->insert(stack->end(), made.begin(), made.end());
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
