// As much of the driver as LibTorch asks for.
#include <cuda.h>

#include "tests/host_device/core.h"

namespace {

thread_local CUcontext current = nullptr;

}  // namespace

API CUresult cuInit(unsigned) {
  return CUDA_SUCCESS;
}
/// NVRTC asks, and takes no missing function for an answer.
API CUresult cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
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
