#include "capture/retained_bytes.h"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>  // where allocators look for it

#include <memory>

namespace millrace::capture {
namespace {

/// Allocators report this thread's allocations and frees to it.
class Counter final : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t,
                         c10::Device) override {
    held += bytes;  // below 0 when memory is freed
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t held = 0;
};

}  // namespace

std::int64_t retained_bytes(const std::function<void()>& work) {
  const auto counter = std::make_shared<Counter>();
  const c10::DebugInfoGuard counting(c10::DebugInfoKind::PROFILER_STATE, counter);
  work();
  return counter->held;
}

}  // namespace millrace::capture
