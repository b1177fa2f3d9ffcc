#include "tests/capture/operator_tape.h"

#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>  // below autograd

#include <limits>
#include <set>
#include <stdexcept>
#include <vector>

#include "capture/program/node.h"

namespace millrace::capture {
namespace {

using program::Call, program::each_tensor;

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
};

OperatorTape::OperatorTape(const std::function<void()>& body) : notes_(std::make_unique<Notes>()) {
  notes_->calls = program::record_calls(body);
  const at::AutoDispatchBelowADInplaceOrView plain;
  const std::vector<at::Tensor> made = notes_->made();
  const program::OwnMemory own(notes_->calls);
  for (const at::Tensor& tensor : made) {
    if (own.holds(tensor)) notes_->temporary.push_back(tensor);
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
