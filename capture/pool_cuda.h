// Memory that belongs to recorded work.
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

namespace millrace::capture {

/// Memory on a device and, pinned, on the host, which LibTorch gives to nobody else while the pool
/// lives. LibTorch counts the users of each half by itself and takes no pool again that had none
/// left, as after a trial or a capture that failed: so the pool counts as one of both.
class Pool {
 public:
  explicit Pool(c10::Device device);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  /// While it lives, what is allocated on `stream` comes from the pool. One a pool at a time.
  class Use {
   public:
    Use(const Pool& pool, c10::cuda::CUDAStream stream);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    const Pool& pool_;
  };

 private:
  c10::DeviceIndex device_;
  c10::MempoolId_t id_;
};

}  // namespace millrace::capture
