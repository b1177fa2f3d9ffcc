#include "capture/program/recording.h"

#include <ATen/ATen.h>
#include <ATen/native/ConvUtils.h>              // sizes
#include <c10/core/impl/LocalDispatchKeySet.h>  // switches recording on and off
#include <c10/util/ScopeExit.h>
#include <sys/mman.h>
#include <torch/library.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <optional>
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

/// Whole pages are given back, so they are zero and take no memory until somebody writes to them.
void clear(const at::Tensor& tensor) {
  static const auto page = std::size_t(sysconf(_SC_PAGESIZE));
  auto* const begin = static_cast<char*>(tensor.mutable_data_ptr());
  void* pages = begin;
  std::size_t rest = tensor.nbytes();
  if (!tensor.is_cpu() || !std::align(page, page, pages, rest) ||
      madvise(pages, rest / page * page, MADV_DONTNEED) != 0) {
    tensor.zero_();
    return;
  }
  std::memset(begin, 0, tensor.nbytes() - rest);
  std::memset(begin + tensor.nbytes() - rest % page, 0, rest % page);
}

/// Undefined unless it is wanted.
at::Tensor zeros(at::IntArrayRef sizes, const at::Tensor& like, bool wanted = true,
                 std::optional<at::ScalarType> type = {}) {
  if (!wanted) return {};
  const at::MemoryFormat format = std::int64_t(sizes.size()) == like.dim()
                                      ? like.suggest_memory_format()
                                      : at::MemoryFormat::Contiguous;
  const at::Tensor made = at::empty(
      sizes, like.options().dtype(type.value_or(like.scalar_type())).memory_format(format));
  clear(made);
  return made;
}

/// convolution(input, weight, bias?, stride, padding, dilation, transposed, output_padding, groups)
MadeUp convolved(Arguments a) {
  const at::Tensor &input = a[0].toTensor(), &weight = a[1].toTensor();
  if (input.dim() != 4 || a[6].toBool()) return {};
  const auto pair = [&](int at) {
    std::vector<std::int64_t> numbers = a[at].toIntVector();
    numbers.resize(2, numbers[0]);  // one number stands for both
    return numbers;
  };
  return {
      zeros(at::native::conv_output_size(input.sizes(), weight.sizes(), pair(4), pair(3), pair(5)),
            input)};
}

/// convolution_backward(gradient, input, weight, bias_sizes?, stride, ..., output_mask)
MadeUp convolved_back(Arguments a) {
  const at::Tensor &input = a[1].toTensor(), &weight = a[2].toTensor();
  const c10::List<bool> wanted = a[10].toBoolList();
  return {zeros(input.sizes(), input, wanted[0]), zeros(weight.sizes(), weight, wanted[1]),
          wanted[2] ? zeros(a[3].toIntVector(), weight) : at::Tensor()};
}

bool in_order(const at::Tensor& tensor) {
  return tensor.is_contiguous(tensor.suggest_memory_format());
}

/// add(input, other, scale), relu(input), threshold_backward(gradient, input, threshold)
MadeUp alike(Arguments a) {
  const at::Tensor& like = a[0].toTensor();
  if (!in_order(like)) return {};
  for (const c10::IValue& argument : a) {
    if (!argument.isTensor()) continue;
    const at::Tensor& other = argument.toTensor();
    if (other.sizes() != like.sizes() || other.strides() != like.strides() ||
        other.dtype() != like.dtype())
      return {};
  }
  return {zeros(like.sizes(), like)};
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

/// quantize(values): bytes, and the range of each line
MadeUp quantized(Arguments a) {
  const at::Tensor& values = a[0].toTensor();
  if (!in_order(values)) return {};
  return {zeros(values.sizes(), values, true, at::kByte),
          zeros({values.dim() == 4 ? values.size(2) : 1, 2}, values)};
}

/// dequantize(bytes, ranges)
MadeUp dequantized(Arguments a) {
  const at::Tensor& bytes = a[0].toTensor();
  if (!in_order(bytes)) return {};
  return {zeros(bytes.sizes(), bytes, true, at::kFloat)};
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
      {"aten::add", alike},
      {"aten::relu", alike},
      {"aten::threshold_backward", alike},
      {"aten::convolution", convolved},
      {"aten::convolution_backward", convolved_back},
      {"aten::native_group_norm_backward", group_normed_back},
      {"millrace::quantize", quantized},
      {"millrace::dequantize", dequantized},
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

/// Whether a mask is among the indices: its values would decide the result's size.
bool has_mask(const c10::IValue& indices) {
  return std::ranges::any_of(indices.toListRef(), [](const c10::IValue& index) {
    return index.isTensor() && index.toTensor().defined() &&
           c10::isIntegralType(index.toTensor().scalar_type(), /*includeBool=*/true) &&
           index.toTensor().element_size() == 1;
  });
}

void record(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  static const std::set<std::string> asking = {"aten::item", "aten::_local_scalar_dense",
                                               "aten::equal", "aten::is_nonzero", "aten::nonzero"};
  const std::string& name = operation.schema().name();
  const auto arguments = std::ptrdiff_t(operation.schema().arguments().size());
  const c10::impl::ExcludeDispatchKeyGuard once(kRecording);
  if (asking.count(name) > 0 ||
      (name == "aten::index" && has_mask(torch::jit::peek(*stack, 1, 2)))) {
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
