// As much of the driver as LibTorch asks for.
#include <cuda.h>

#include "tests/host_device/core.h"

namespace {

thread_local CUcontext current = nullptr;

}  // namespace

SUCCEEDS(CUresult, cuInit, (unsigned))
/// NVRTC asks, and takes no missing function for an answer.
API CUresult cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
SUCCEEDS(CUresult, cuDriverGetVersion, (int* version), *version = CUDA_VERSION)
SUCCEEDS(CUresult, cuDeviceGetCount, (int* count), *count = host_device::kDevices)
SUCCEEDS(CUresult, cuGetErrorString, (CUresult error, const char** words),
         *words = error == CUDA_ERROR_NOT_SUPPORTED ? "operation not supported"
                                                    : "invalid argument")
API CUresult cuGetErrorName(CUresult error, const char** words) {
  return cuGetErrorString(error, words);
}
API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < host_device::kDevices ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}
SUCCEEDS(CUresult, cuDeviceGetAttribute, (int* value, CUdevice_attribute, CUdevice), *value = 0)
SUCCEEDS(CUresult, cuDevicePrimaryCtxGetState, (CUdevice, unsigned* flags, int* active), *flags = 0,
         *active = 1)
SUCCEEDS(CUresult, cuCtxGetCurrent, (CUcontext * context), *context = current)
SUCCEEDS(CUresult, cuCtxSetCurrent, (CUcontext context), current = context)
