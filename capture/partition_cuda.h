// A device's SMs split among streams, by the driver's green contexts.
#pragma once

#include <c10/core/Device.h>  // c10::Device
#include <cuda.h>             // green contexts, streams

#include <cstddef>  // std::size_t
#include <memory>   // what it owns
#include <vector>   // one a stream

namespace millrace::capture {

/// One split of a device's SMs into groups, and a stream for each share of them. All streams of a
/// device come from one split, since separate ones overlap. SMs that make no whole group are left
/// idle. Owns streams and contexts.
class Partition {
 public:
  /// A stream for each of `work` (>= 0, any unit), with SMs as sm_shares() gives them. Throws
  /// std::invalid_argument for more streams than groups, std::runtime_error with the driver's words
  /// for whatever it refuses.
  Partition(c10::Device device, const std::vector<double>& work);

  /// Of the share of work[index].
  CUstream stream(std::size_t index) const { return streams_[index].get(); }

 private:
  void add(CUdevice device, CUdevResource* groups, int count);

  struct DestroyContext {
    void operator()(CUgreenCtx context) const;
  };
  struct DestroyStream {
    void operator()(CUstream stream) const;
  };
  std::vector<std::unique_ptr<CUgreenCtx_st, DestroyContext>> contexts_;
  std::vector<std::unique_ptr<CUstream_st, DestroyStream>> streams_;  ///< go before their contexts
};

}  // namespace millrace::capture
