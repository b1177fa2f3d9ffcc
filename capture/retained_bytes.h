#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>  // where allocators look for a counter

#include <algorithm>
#include <cstdint>
#include <memory>

namespace millrace::capture {

/// Runs `work` once on this thread and returns the bytes of tensor memory it allocated and still
/// holds at the end: for a forward, the output and what autograd saved. Exact, from the allocator
/// (which rounds up to its alignment on some devices).
template <class Work>
std::int64_t retained_bytes(const Work& work) {
  /// Allocators report this thread's allocations and frees to it.
  struct Counter final : c10::MemoryReportingInfoBase {
    void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t,
                           c10::Device) override {
      held += bytes;  // below 0 when memory is freed
    }
    bool memoryProfilingEnabled() const override { return true; }
    std::int64_t held = 0;
  };
  const auto counter = std::make_shared<Counter>();
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, counter);
  work();
  return counter->held;
}

/// Bytes of the outputs that share memory with no input and fill their storage.
inline std::int64_t bytes_alone(at::TensorList inputs, at::TensorList outputs) {
  std::int64_t bytes = 0;
  for (const at::Tensor& output : outputs) {
    const bool alone = std::ranges::none_of(
        inputs, [&](const at::Tensor& input) { return input.is_alias_of(output); });
    if (alone && output.storage().nbytes() == output.nbytes())
      bytes += std::int64_t(output.nbytes());
  }
  return bytes;
}

}  // namespace millrace::capture
