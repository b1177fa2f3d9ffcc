// As much of the driver as LibTorch asks for, and green contexts, whose streams are streams.
#include <cuda.h>

#include <cstring>

#include "tests/host_device/core.h"

namespace {

constexpr unsigned kGroup = 8, kProcessors = 132;

struct Share {
  unsigned first, groups;
};
struct Green {
  int device;
  Share share;
  bool gone = false;
};
thread_local CUcontext current = nullptr;

/// One driver function.
template <class Body>
CUresult drive(const char* name, const Body& body) {
  const host_device::Guard guard(host_device::lock);
  const auto failed = CUresult(host_device::begin_call(name));
  return failed != CUDA_SUCCESS ? failed : body();
}

}  // namespace

API CUresult cuInit(unsigned) {
  return CUDA_SUCCESS;
}
API CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
API CUresult cuDeviceGetCount(int* count) {
  *count = host_device::kDevices;
  return CUDA_SUCCESS;
}
API CUresult cuGetErrorString(CUresult error, const char** words) {
  *words = error == CUDA_ERROR_NOT_SUPPORTED ? "operation not supported" : "invalid argument";
  return CUDA_SUCCESS;
}
API CUresult cuGetErrorName(CUresult error, const char** words) {
  return cuGetErrorString(error, words);
}
API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < host_device::kDevices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute, CUdevice) {
  *value = 0;
  return CUDA_SUCCESS;
}
API CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* active) {
  *flags = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
API CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = current;
  return CUDA_SUCCESS;
}
API CUresult cuCtxSetCurrent(CUcontext context) {
  current = context;
  return CUDA_SUCCESS;
}

API CUresult cuDeviceGetDevResource(CUdevice, CUdevResource* all, CUdevResourceType type) {
  return drive(__func__, [&] {
    if (type != CU_DEV_RESOURCE_TYPE_SM) return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    *all = {};
    all->type = type;
    all->sm.smCount = kProcessors;
    all->sm.minSmPartitionSize = all->sm.smCoscheduledAlignment = kGroup;
    return CUDA_SUCCESS;
  });
}
API CUresult cuDevSmResourceSplitByCount(CUdevResource* made, unsigned* groups,
                                         const CUdevResource* all, CUdevResource* left, unsigned,
                                         unsigned least) {
  return drive(__func__, [&] {
    const unsigned each = std::max(kGroup, (least + kGroup - 1) / kGroup * kGroup);
    const unsigned most = all->sm.smCount / each;
    *groups = made ? std::min(*groups, most) : most;
    for (unsigned i = 0; made && i < *groups; ++i) {
      made[i] = *all;
      made[i].sm.smCount = each;
      made[i]._internal_padding[0] = static_cast<unsigned char>(i);  // which one it is
    }
    if (left) {
      *left = *all;
      left->sm.smCount = all->sm.smCount - *groups * each;
    }
    return CUDA_SUCCESS;
  });
}
API CUresult cuDevResourceGenerateDesc(CUdevResourceDesc* made, CUdevResource* resources,
                                       unsigned count) {
  return drive(__func__, [&] {
    if (count == 0) return CUDA_ERROR_INVALID_VALUE;
    Share* const share = host_device::new_handle<Share>();
    *share = {resources[0]._internal_padding[0], count};
    *made = reinterpret_cast<CUdevResourceDesc>(share);
    return CUDA_SUCCESS;
  });
}
API CUresult cuGreenCtxCreate(CUgreenCtx* made, CUdevResourceDesc share, CUdevice device,
                              unsigned flags) {
  return drive(__func__, [&] {
    static std::vector<const Green*>& all = *new std::vector<const Green*>;
    if (flags != CU_GREEN_CTX_DEFAULT_STREAM) return CUDA_ERROR_INVALID_VALUE;
    auto* green = new Green{device, *reinterpret_cast<Share*>(share)};
    for (const Green* other : all) {
      const Share &a = green->share, &b = other->share;
      if (!other->gone && other->device == device && a.first < b.first + b.groups &&
          b.first < a.first + a.groups)
        host_device::violation("two green contexts share SMs");
    }
    all.push_back(green);
    *made = reinterpret_cast<CUgreenCtx>(green);
    return CUDA_SUCCESS;
  });
}
API CUresult cuGreenCtxDestroy(CUgreenCtx context) {
  return drive(__func__, [&] {
    auto* green = reinterpret_cast<Green*>(context);
    if (green->gone) host_device::violation("a green context is destroyed twice");
    green->gone = true;
    return CUDA_SUCCESS;
  });
}
API CUresult cuGreenCtxStreamCreate(CUstream* made, CUgreenCtx context, unsigned flags, int) {
  return drive(__func__, [&] {
    const auto* green = reinterpret_cast<Green*>(context);
    if (green->gone || flags != CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
    *made = host_device::new_stream(green->device, cudaStreamNonBlocking);
    return CUDA_SUCCESS;
  });
}
