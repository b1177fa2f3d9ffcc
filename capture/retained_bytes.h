// How much memory a piece of work leaves allocated.
#pragma once

#include <cstdint>
#include <functional>

namespace millrace::capture {

/// Runs `work` once on this thread and returns the bytes of tensor memory that it allocated and
/// that are still held when it returns: for a forward, the output and what autograd saved. Counted
/// exactly, at the allocator (which rounds up to its alignment on some devices).
std::int64_t retained_bytes(const std::function<void()>& work);

}  // namespace millrace::capture
