#pragma once

#include <cstdint>
#include <functional>

namespace millrace::capture {

/// Runs `work` once on this thread and returns the bytes of tensor memory it allocated and still
/// holds at the end: for a forward, the output and what autograd saved. Exact, from the allocator
/// (which rounds up to its alignment on some devices).
std::int64_t retained_bytes(const std::function<void()>& work);

}  // namespace millrace::capture
