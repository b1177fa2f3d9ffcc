#include "capture/partition_cuda.h"

#include <c10/cuda/CUDAGuard.h>  // current device
#include <cudaTypedefs.h>        // the driver's functions
#include <cuda_runtime_api.h>    // where they are

#include <stdexcept>  // std::runtime_error
#include <string>     // messages

#include "capture/sm_shares.h"

namespace millrace::capture {
namespace {

void require(cudaError_t result, const std::string& what) {
  if (result != cudaSuccess) throw std::runtime_error(what + ": " + cudaGetErrorString(result));
}

/// The driver's function as CUDA `version` (1000 * major + 10 * minor) has it.
template <class Function>
Function entry(const char* name, unsigned version) {
  void* found = nullptr;
  require(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault), name);
  if (!found) throw std::runtime_error(std::string(name) + ": the driver has no such function");
  return reinterpret_cast<Function>(found);
}

/// Asked for by name, so that programs need no driver to link or start.
struct Driver {
  PFN_cuGetErrorString_v6000 error_string =
      entry<PFN_cuGetErrorString_v6000>("cuGetErrorString", 6000);
  PFN_cuDeviceGet_v2000 get_device = entry<PFN_cuDeviceGet_v2000>("cuDeviceGet", 2000);
  PFN_cuDeviceGetDevResource_v12040 get_resource =
      entry<PFN_cuDeviceGetDevResource_v12040>("cuDeviceGetDevResource", 12040);
  PFN_cuDevSmResourceSplitByCount_v12040 split =
      entry<PFN_cuDevSmResourceSplitByCount_v12040>("cuDevSmResourceSplitByCount", 12040);
  PFN_cuDevResourceGenerateDesc_v12040 describe =
      entry<PFN_cuDevResourceGenerateDesc_v12040>("cuDevResourceGenerateDesc", 12040);
  PFN_cuGreenCtxCreate_v12040 create_context =
      entry<PFN_cuGreenCtxCreate_v12040>("cuGreenCtxCreate", 12040);
  PFN_cuGreenCtxDestroy_v12040 destroy_context =
      entry<PFN_cuGreenCtxDestroy_v12040>("cuGreenCtxDestroy", 12040);
  PFN_cuGreenCtxStreamCreate_v12050 create_stream =
      entry<PFN_cuGreenCtxStreamCreate_v12050>("cuGreenCtxStreamCreate", 12050);
};

const Driver& driver() {
  static const Driver found;
  return found;
}

void require(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* words = nullptr;
  driver().error_string(result, &words);
  throw std::runtime_error(std::string(call) + ": " +
                           (words ? words : "error " + std::to_string(int(result))));
}

/// All SMs in groups of the least size that the device has.
std::vector<CUdevResource> groups_of(CUdevice device) {
  CUdevResource all{};
  require(driver().get_resource(device, &all, CU_DEV_RESOURCE_TYPE_SM), "cuDeviceGetDevResource");
  const unsigned least = all.sm.minSmPartitionSize;
  unsigned count = 0;
  require(driver().split(nullptr, &count, &all, nullptr, 0, least), "cuDevSmResourceSplitByCount");
  std::vector<CUdevResource> groups(count);
  require(driver().split(groups.data(), &count, &all, nullptr, 0, least),
          "cuDevSmResourceSplitByCount");
  groups.resize(count);
  return groups;
}

}  // namespace

Partition::Partition(c10::Device device, const std::vector<double>& work) {
  driver();  // says first of all if it is not there
  const c10::cuda::CUDAGuard on_device(device);
  // A green context keeps the primary one, which is dear to make and to unmake again.
  require(cudaFree(nullptr), "the device's primary context");
  CUdevice number = 0;
  require(driver().get_device(&number, device.index()), "cuDeviceGet");
  std::vector<CUdevResource> groups = groups_of(number);
  CUdevResource* next = groups.data();
  for (const int share : sm_shares(int(groups.size()), work)) {
    add(number, next, share);
    next += share;
  }
}

void Partition::add(CUdevice device, CUdevResource* groups, int count) {
  CUdevResourceDesc share = nullptr;
  require(driver().describe(&share, groups, unsigned(count)), "cuDevResourceGenerateDesc");
  CUgreenCtx context = nullptr;
  require(driver().create_context(&context, share, device, CU_GREEN_CTX_DEFAULT_STREAM),
          "cuGreenCtxCreate");
  contexts_.emplace_back(context);
  CUstream stream = nullptr;
  require(driver().create_stream(&stream, context, CU_STREAM_NON_BLOCKING, 0),
          "cuGreenCtxStreamCreate");
  streams_.emplace_back(stream);
}

void Partition::DestroyContext::operator()(CUgreenCtx context) const {
  driver().destroy_context(context);
}

void Partition::DestroyStream::operator()(CUstream stream) const {
  cudaStreamSynchronize(stream);  // its context goes next
  cudaStreamDestroy(stream);
}

}  // namespace millrace::capture
