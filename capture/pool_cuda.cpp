#include "capture/pool_cuda.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/MemPool.h>  // a new pool's number

namespace millrace::capture {
namespace {

namespace device_half = c10::cuda::CUDACachingAllocator;

at::HostAllocator& host_half() {
  return *at::getHostAllocator(at::kCUDA);
}

}  // namespace

Pool::Pool(c10::Device device)
    : device_(device.index()), id_(at::cuda::MemPool::graph_pool_handle()) {
  device_half::createOrIncrefPool(device_, id_);
  host_half().begin_allocate_to_pool(id_, [](c10::Stream) { return false; });  // counts, too
  host_half().end_allocate_to_pool(id_);
}

Pool::~Pool() {
  host_half().release_pool(id_);
  device_half::releasePool(device_, id_);
}

Pool::Use::Use(const Pool& pool, c10::cuda::CUDAStream stream) : pool_(pool) {
  device_half::beginAllocateToPool(
      pool_.device_, pool_.id_,
      [mine = stream.stream()](cudaStream_t other) { return other == mine; });
  host_half().begin_allocate_to_pool(
      pool_.id_, [mine = stream.unwrap()](c10::Stream other) { return other == mine; });
}

Pool::Use::~Use() {
  host_half().end_allocate_to_pool(pool_.id_);
  host_half().release_pool(pool_.id_);
  device_half::endAllocateToPool(pool_.device_, pool_.id_);
  device_half::releasePool(pool_.device_, pool_.id_);
}

}  // namespace millrace::capture
