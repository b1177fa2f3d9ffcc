// Named time ranges on threads, for an attached profiler.
#pragma once

namespace millrace::capture {

/// Whether a profiler that understands NVTX (Nsight Systems) is attached; false in a build without
/// CUDA's headers. Any thread; the answer of the first call is kept.
bool profiler_attached();

/// Begins a range on this thread, nested in its open ones. Only if profiler_attached().
void push_range(const char* name);
void pop_range();

}  // namespace millrace::capture
