// Memory, copies, and what may be wrong with either. A device's memory is a file mapped twice:
// where the program sees it, the host faults on it; work reaches it elsewhere.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "tests/host_device/core.h"

namespace host_device {
namespace {

constexpr std::uintptr_t kSeen = 0x200000000000, kReached = 0x300000000000,
                         kRoom = 0x10000000000;  // 1 TiB a device

struct Allocation {
  std::size_t bytes;
  int device;  ///< -1: pinned
  std::uint64_t number;
};
using Allocations = std::map<std::uintptr_t, Allocation>;
Allocations& allocations = *new Allocations;
std::uint64_t allocated = 0;
std::size_t used[kMostDevices] = {}, pinned = 0;
int files[kMostDevices];

std::uintptr_t number_of(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address);
}

/// The allocation that holds the address; end(): none.
Allocations::iterator holding(const void* address) {
  auto found = allocations.upper_bound(number_of(address));
  if (found == allocations.begin()) return allocations.end();
  --found;
  return number_of(address) < found->first + found->second.bytes ? found : allocations.end();
}

struct Access {
  Range range;
  std::string name;
  std::uint64_t stream, at;
  MarkPtr over;
};
std::deque<Access>& accesses = *new std::deque<Access>;

}  // namespace

bool is_device_address(const void* address) {
  const std::uintptr_t at = number_of(address);
  return at >= kSeen && at < kSeen + kDevices * kRoom;
}

void map_devices() {
  static bool mapped = false;
  if (std::exchange(mapped, true)) return;
  for (int device = 0; device < kDevices; ++device) {
    files[device] = memfd_create("host device", 0);
    void* const seen = reinterpret_cast<void*>(kSeen + device * kRoom);
    void* const reached = reinterpret_cast<void*>(kReached + device * kRoom);
    constexpr int kThere = MAP_FIXED_NOREPLACE | MAP_NORESERVE;
    if (ftruncate(files[device], off_t(kMemory)) != 0 ||
        mmap(seen, kMemory, PROT_NONE, kThere | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != seen ||
        mmap(reached, kMemory, PROT_READ | PROT_WRITE, kThere | MAP_SHARED, files[device], 0) !=
            reached) {
      std::perror("host device: memory");
      std::abort();
    }
  }
}

void note_memory(Work& work) {
  work.allocations.clear();
  for (const Range& range : work.ranges) {
    const auto found = holding(range.at);
    const bool held = found != allocations.end();
    if (!held && is_device_address(range.at))
      violation("%s uses %p, which is no allocation's", work.name.c_str(), range.at);
    if (held && number_of(range.at) + range.bytes > found->first + found->second.bytes)
      violation("%s reaches beyond the allocation of %p", work.name.c_str(), range.at);
    work.allocations.push_back(held ? found->second.number : 0);
  }
}

void require_memory(const Work& work) {
  for (std::size_t i = 0; i < work.ranges.size(); ++i) {
    const auto found = holding(work.ranges[i].at);
    const std::uint64_t number = found != allocations.end() ? found->second.number : 0;
    if (work.allocations[i] != 0 && number != work.allocations[i])
      violation("%s of a graph uses %p, which was freed", work.name.c_str(), work.ranges[i].at);
  }
}

bool overlap(const Range& a, const Range& b) {
  return number_of(a.at) < number_of(b.at) + b.bytes && number_of(b.at) < number_of(a.at) + a.bytes;
}

void look_for_races(const std::shared_ptr<Work>& work, CUstream_st& stream, const MarkPtr& over) {
  while (!accesses.empty() && accesses.front().over->over) accesses.pop_front();
  for (const Range& range : work->ranges) {
    for (const Access& other : accesses) {
      if (other.stream == stream.number || other.over->over) continue;
      if (!(range.written || other.range.written) || !overlap(range, other.range)) continue;
      const auto seen = stream.before.find(other.stream);
      if (seen != stream.before.end() && seen->second >= other.at) continue;
      violation("%s %s what %s %s on another stream, in no order", work->name.c_str(),
                range.written ? "writes" : "reads", other.name.c_str(),
                other.range.written ? "writes" : "reads");
    }
    accesses.push_back({range, work->name, stream.number, stream.position + 1, over});
  }
}

namespace {

std::shared_ptr<Work> copying(void* to, const void* from, std::size_t bytes) {
  auto work = std::make_shared<Work>();
  work->name = "a copy";
  work->type = cudaGraphNodeTypeMemcpy;
  work->ranges = {{to, bytes, true}, {from, bytes, false}};
  work->run = [there = hostDeviceReach(to), here = hostDeviceReach(from), bytes] {
    // A number that the host polls must be there whole.
    if (bytes == 8 && number_of(there) % 8 == 0 && number_of(here) % 8 == 0) {
      std::uint64_t number;
      std::memcpy(&number, here, 8);
      __atomic_store_n(static_cast<std::uint64_t*>(there), number, __ATOMIC_RELEASE);
    } else {
      std::memmove(there, here, bytes);
    }
  };
  return work;
}

}  // namespace
}  // namespace host_device

using namespace host_device;

API void* hostDeviceReach(const void* address) {
  return reinterpret_cast<void*>(is_device_address(address) ? number_of(address) - kSeen + kReached
                                                            : number_of(address));
}
API bool hostDeviceHolds(const void* address) {
  return holding(address) != allocations.end();
}
API Held hostDeviceHeld() {
  const Guard guard(lock);
  return {.streams = int(std::ranges::count_if(streams, alive<CUstream_st>)),
          .graphs = graphs_held,
          .executables = executables_held,
          .captures = captures_under_way(),
          .device_bytes = std::accumulate(used, used + kMostDevices, std::size_t(0)),
          .pinned_bytes = pinned};
}

CALL(cudaMalloc, (void** made, std::size_t bytes), {
  TRY(unsafe());
  map_devices();
  *made = nullptr;
  if (bytes == 0) return cudaSuccess;
  bytes = (bytes + 511) / 512 * 512;
  const std::uintptr_t first = kSeen + current_device * kRoom, end = first + kMemory;
  std::uintptr_t at = first;
  for (auto next = allocations.lower_bound(first);
       next != allocations.end() && next->first < end && next->first - at < bytes; ++next)
    at = next->first + next->second.bytes;
  if (at + bytes > end) return cudaErrorMemoryAllocation;
  allocations[at] = {bytes, current_device, ++allocated};
  used[current_device] += bytes;
  *made = reinterpret_cast<void*>(at);
  std::memset(hostDeviceReach(*made), 0xFF, bytes);  // NaN, -1, true: nothing to rely on
})
CALL(cudaFree, (void* address), {
  map_devices();
  if (!address) return cudaSuccess;
  TRY(unsafe());
  const auto found = allocations.find(number_of(address));
  if (found == allocations.end() || found->second.device < 0) {
    violation("cudaFree of %p, which is no allocation", address);
    return cudaErrorInvalidValue;
  }
  const auto [bytes, device, number] = found->second;
  wait_for_device(guard, device);
  const off_t offset = off_t(number_of(address) - kSeen - device * kRoom);
  if (fallocate(files[device], FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, off_t(bytes)))
    std::perror("host device: memory");
  used[device] -= bytes;
  allocations.erase(number_of(address));
})
CALL(cudaMemGetInfo, (std::size_t * free, std::size_t* total), {
  *free = kMemory - used[current_device];
  *total = kMemory;
})
CALL(cudaHostAlloc, (void** made, std::size_t bytes, unsigned), {
  TRY(unsafe());
  *made = bytes ? std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096) : nullptr;
  if (!*made) return bytes ? cudaErrorMemoryAllocation : cudaSuccess;
  allocations[number_of(*made)] = {bytes, -1, ++allocated};
  pinned += bytes;
})
CALL(cudaFreeHost, (void* address), {
  if (!address) return cudaSuccess;
  TRY(unsafe());
  for (int device = 0; device < kDevices; ++device) wait_for_device(guard, device);
  const auto found = allocations.find(number_of(address));
  if (found == allocations.end() || found->second.device >= 0) return cudaErrorInvalidValue;
  pinned -= found->second.bytes;
  allocations.erase(found);
  std::free(address);
})
CALL(cudaMemcpyAsync,
     (void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t handle), {
       CUstream_st* const stream = stream_of(handle);
       if (!stream) return cudaErrorInvalidResourceHandle;
       if (bytes == 0) return cudaSuccess;
       const bool to_device = is_device_address(to), from_device = is_device_address(from);
       if ((kind == cudaMemcpyHostToDevice && (!to_device || from_device)) ||
           (kind == cudaMemcpyDeviceToHost && (to_device || !from_device)) ||
           (kind == cudaMemcpyDeviceToDevice && !(to_device && from_device)))
         return cudaErrorInvalidValue;
       const bool pageable =  // staged, so that the host waits
           holding(to) == allocations.end() || holding(from) == allocations.end();
       if (pageable) TRY(refuse_captured(*stream));
       TRY(give(stream, copying(to, from, bytes)));
       if (pageable) wait_until_over(guard, stream->tail);
     })
CALL(cudaMemsetAsync, (void* to, int value, std::size_t bytes, cudaStream_t stream), {
  auto work = std::make_shared<Work>();
  work->name = "a memset";
  work->type = cudaGraphNodeTypeMemset;
  work->ranges = {{to, bytes, true}};
  work->run = [there = hostDeviceReach(to), value, bytes] { std::memset(there, value, bytes); };
  return give(stream_of(stream), work);
})
