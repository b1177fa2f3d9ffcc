#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <vector>

#include "capture/arena.h"

namespace millrace::program {

/// An operator's call below autograd, with its arguments and results, whose memory it keeps.
struct Call {
  c10::OperatorHandle operation;
  std::vector<c10::IValue> arguments, results;
  capture::Arena* kept_in = nullptr;  ///< KeptIn's; null: none

  const std::string& name() const { return operation.schema().name(); }
};

/// Runs `body` on this thread and returns its operator calls in order, without nested ones. Has no
/// side effects and skips slow work: convolutions and sums over ranks give zeros, updates change
/// nothing. Throws std::runtime_error for an operator that returns a number to the host, which a
/// replay would not read again. Recordings do not nest.
std::vector<Call> record_calls(const std::function<void()>& body);

void run_dry(const std::function<void()>& body);

/// Visits the defined tensors in `values`, including lists.
template <class Visit>
void each_tensor(const std::vector<c10::IValue>& values, const Visit& visit) {
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

}  // namespace millrace::program
