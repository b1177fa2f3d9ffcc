// Stretches of a thread's time under a name, for a profiler that watches the process.
#pragma once

namespace millrace::capture {

/// Whether one does that understands NVTX (Nsight Systems); never in a build without CUDA's
/// headers. Any thread; the first call looks, and the answer stays.
bool profiler_attached();

/// Begins a range on this thread, within those that are open there. Only if profiler_attached().
void push_range(const char* name);
/// Ends the range that this thread began last.
void pop_range();

}  // namespace millrace::capture
