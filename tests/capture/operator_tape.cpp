#include "tests/capture/operator_tape.h"

#include <ATen/ATen.h>                          // tensors
#include <ATen/core/LegacyTypeDispatch.h>       // below autograd
#include <ATen/core/dispatch/Dispatcher.h>      // operators by name
#include <c10/core/impl/LocalDispatchKeySet.h>  // noting on and off
#include <torch/library.h>                      // a fallback for all operators

#include <limits>     // spoilt numbers
#include <map>        // owners
#include <set>        // what asks the host
#include <stdexcept>  // refusals
#include <string>     // names
#include <vector>     // calls

namespace millrace::capture {
namespace {

constexpr c10::DispatchKey kNoting = c10::DispatchKey::TESTING_ONLY_GenericMode;

using Values = std::vector<c10::IValue>;

struct Call {
  c10::OperatorHandle operation;
  Values arguments, results;
};

thread_local std::vector<Call>* noting = nullptr;

/// The same memory without autograd's part, which a recording does not hold.
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

template <class Visit>
void each_tensor(const Values& values, const Visit& visit) {
  const auto visit_defined = [&](const at::Tensor& tensor) {
    if (tensor.defined()) visit(tensor);
  };
  for (const c10::IValue& value : values) {
    if (value.isTensor()) visit_defined(value.toTensor());
    if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) visit_defined(tensor);
    }
  }
}

/// Gets every operator that a body calls while its tape is made; what those call is theirs.
void note(const c10::OperatorHandle& operation, torch::jit::Stack* stack) {
  static const std::set<std::string> asking = {"aten::item", "aten::_local_scalar_dense",
                                               "aten::equal", "aten::is_nonzero", "aten::nonzero"};
  const std::string& name = operation.schema().name();
  if (asking.count(name) > 0) throw std::runtime_error(name + " is not permitted while recording");
  const c10::impl::ExcludeDispatchKeyGuard once(kNoting);
  const auto first = std::ptrdiff_t(stack->size() - operation.schema().arguments().size());
  Call call{operation, {}, {}};
  for (auto at = stack->begin() + first; at != stack->end(); ++at)
    call.arguments.push_back(bare(*at));
  operation.callBoxed(*stack);
  for (auto at = stack->begin() + first; at != stack->end(); ++at)
    call.results.push_back(bare(*at));
  noting->push_back(std::move(call));
}

/// Leaves `made` where the recorded call left its result.
void keep(const at::Tensor& recorded, const at::Tensor& made) {
  if (recorded.const_data_ptr() == made.const_data_ptr()) return;
  if (recorded.sizes() != made.sizes() || recorded.strides() != made.strides())
    throw std::logic_error("a result has another layout than when it was recorded");
  at::Tensor(recorded).copy_(made);
}

void spoil(const std::vector<at::Tensor>& all) {
  for (const at::Tensor& tensor : all) {
    if (tensor.is_floating_point())
      at::Tensor(tensor).fill_(std::numeric_limits<double>::quiet_NaN());
  }
}

}  // namespace

TORCH_LIBRARY_IMPL(_, TESTING_ONLY_GenericMode, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&note>());
}

struct OperatorTape::Notes {
  std::vector<Call> calls;
  std::vector<at::Tensor> temporary;  ///< made by the calls, and held by nobody else

  /// Results whose memory no call had seen before.
  std::vector<at::Tensor> made() const {
    std::set<const c10::StorageImpl*> seen;
    std::vector<at::Tensor> found;
    for (const Call& call : calls) {
      each_tensor(call.arguments,
                  [&](const auto& t) { seen.insert(t.storage().unsafeGetStorageImpl()); });
      each_tensor(call.results, [&](const auto& t) {
        if (seen.insert(t.storage().unsafeGetStorageImpl()).second) found.push_back(t);
      });
    }
    return found;
  }

  /// How often the calls themselves hold it.
  std::map<const c10::StorageImpl*, std::size_t> holds() const {
    std::map<const c10::StorageImpl*, std::size_t> count;
    const auto add = [&](const at::Tensor& t) { ++count[t.storage().unsafeGetStorageImpl()]; };
    for (const Call& call : calls) {
      each_tensor(call.arguments, add);
      each_tensor(call.results, add);
    }
    return count;
  }
};

OperatorTape::OperatorTape(const std::function<void()>& body) : notes_(std::make_unique<Notes>()) {
  struct Noting {
    explicit Noting(std::vector<Call>& calls) { noting = &calls; }
    ~Noting() { noting = nullptr; }
    c10::impl::IncludeDispatchKeyGuard on{kNoting};
  };
  {
    const Noting now(notes_->calls);
    body();
  }
  const at::AutoDispatchBelowADInplaceOrView plain;
  const std::vector<at::Tensor> made = notes_->made();
  const auto holds = notes_->holds();
  for (const at::Tensor& tensor : made) {
    const c10::Storage& storage = tensor.storage();
    if (std::size_t(storage.use_count()) == holds.at(storage.unsafeGetStorageImpl()))
      notes_->temporary.push_back(tensor);
  }
  spoil(made);
}

OperatorTape::~OperatorTape() = default;

void OperatorTape::replay() const {
  const at::AutoDispatchBelowADInplaceOrView plain;
  for (const Call& call : notes_->calls) {
    torch::jit::Stack stack = call.arguments;
    call.operation.callBoxed(stack);
    std::vector<at::Tensor> recorded;
    each_tensor(call.results, [&](const at::Tensor& t) { recorded.push_back(t); });
    auto next = recorded.begin();
    each_tensor(stack, [&](const at::Tensor& made) { keep(*next++, made); });
  }
  spoil(notes_->temporary);
}

}  // namespace millrace::capture
