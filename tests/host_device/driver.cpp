// As much of the driver as is asked for.
#include <cuda.h>

#include "tests/host_device/core.h"

SUCCEEDS(CUresult, cuInit, (unsigned))
/// NVRTC asks, and takes no missing function for an answer.
API CUresult cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
SUCCEEDS(CUresult, cuDeviceGetCount, (int* count), *count = host_device::kDevices)
SUCCEEDS(CUresult, cuDevicePrimaryCtxGetState, (CUdevice, unsigned* flags, int* active), *flags = 0,
         *active = 1)
