#include "capture/program/recording.h"

#include <c10/core/impl/LocalDispatchKeySet.h>  // recording on and off
#include <torch/library.h>                      // a fallback for all operators

#include <set>        // what asks the host
#include <stdexcept>  // refusals
#include <string>     // names

namespace millrace::program {
namespace {

/// Lies below autograd, so that what autograd saves is a result of some recorded call, and above
/// every backend. LibTorch has no use of its own for it.
constexpr c10::DispatchKey kRecording = c10::DispatchKey::Fake;

thread_local std::vector<Call>* recording = nullptr;

/// The same memory without autograd's part, which a recording must not keep alive.
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

void record(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  static const std::set<std::string> asking = {"aten::item", "aten::_local_scalar_dense",
                                               "aten::equal", "aten::is_nonzero", "aten::nonzero"};
  const std::string& name = operation.schema().name();
  if (asking.count(name) > 0) throw std::runtime_error(name + " is not permitted while recording");
  const c10::impl::ExcludeDispatchKeyGuard once(kRecording);
  const auto arguments = std::ptrdiff_t(operation.schema().arguments().size());
  Call call{operation, {}, {}};
  for (auto at = stack->end() - arguments; at != stack->end(); ++at)
    call.arguments.push_back(bare(*at));
  const auto below = std::ptrdiff_t(stack->size()) - arguments;
  operation.callBoxed(*stack);
  for (auto at = stack->begin() + below; at != stack->end(); ++at)
    call.results.push_back(bare(*at));
  recording->push_back(std::move(call));
}

struct Recorder {
  explicit Recorder(std::vector<Call>& calls) { recording = &calls; }
  ~Recorder() { recording = nullptr; }
  c10::impl::IncludeDispatchKeyGuard on{kRecording};
};

}  // namespace

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&record>());
}

std::vector<Call> record_calls(const std::function<void()>& body) {
  std::vector<Call> calls;
  const Recorder now(calls);
  body();
  return calls;
}

}  // namespace millrace::program
