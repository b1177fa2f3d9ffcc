// The host device: what its parts and its tests ask of it. All in one process; see README.md.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace host_device {

/// Memory that work reads or writes, at the address that the program knows.
struct Range {
  const void* at;
  std::size_t bytes;
  bool written;
};

/// What a stream does: a kernel, a copy, a host function.
struct Work {
  std::string name;
  cudaGraphNodeType type = cudaGraphNodeTypeKernel;
  std::function<void()> run;
  std::vector<Range> ranges;
  std::vector<std::uint64_t> allocations;  ///< of the ranges; filled in when it is given
  /// When a stream is given it, under the device's lock; empty: nothing.
  std::function<void(CUstream_st&)> given;
};

/// A launch as the program asked for it.
struct Launch {
  dim3 grid, block;
  void** arguments;
  std::size_t shared_bytes;
  const char* name;    ///< the kernel's, mangled
  int cluster = 1;     ///< blocks that share their memory
  bool early = false;  ///< may begin before the launch before it is over
};

/// What the program holds. Bytes count what was asked for, on all devices.
struct Held {
  int streams = 0, graphs = 0, executables = 0, captures = 0;
  std::size_t device_bytes = 0, pinned_bytes = 0;
};

}  // namespace host_device

extern "C" {
/// Where work reaches what a device address means; other addresses as they are.
void* hostDeviceReach(const void* address);
/// During a launch: whether it is in device or pinned memory.
bool hostDeviceHolds(const void* address);
/// Gives a stream work, as a kernel's launch would; moves from it.
cudaError_t hostDeviceLaunch(cudaStream_t stream, host_device::Work* work);
/// Has `make` say what a launch of the kernel whose mangled name holds `part` does.
void hostDevicePlay(const char* part, host_device::Work (*make)(const host_device::Launch&));
/// A kernel has failed: every later call says so.
void hostDeviceFault(const char* what);

// For tests. Weak, since their programs are not linked to it: null where it is not preloaded.

/// The `nth` call (1: the next) of the CUDA function `name` fails with `code`. 0: none does.
[[gnu::weak]] void hostDeviceFail(const char* name, int nth, int code);
/// Calls of each CUDA function so far.
[[gnu::weak]] std::map<std::string, int> hostDeviceCalls();
/// Violations since the last time this was asked; those left at exit make the process fail.
[[gnu::weak]] int hostDeviceViolations();
[[gnu::weak]] host_device::Held hostDeviceHeld();
/// The most microseconds by which each operation starts late, from now on.
[[gnu::weak]] void hostDeviceDelay(int microseconds);
}
