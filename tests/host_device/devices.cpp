// What devices are there, kernels, the words for errors, and as much of the driver as is asked for.
#include <cuda.h>

#include <cstdio>
#include <map>
#include <string>
#include <unordered_map>

#include "tests/host_device/core.h"

using namespace host_device;

namespace {

constexpr int kProcessors = 132;

bool there(int device) {
  return device >= 0 && device < kDevices;
}

}  // namespace

API cudaError_t cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return kDevices ? cudaSuccess : cudaErrorNoDevice;
}
CALL(cudaSetDevice, (int device), {
  if (!there(device)) return cudaErrorInvalidDevice;
  current_device = device;
  map_devices();
})
API cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return kDevices ? cudaSuccess : cudaErrorNoDevice;
}
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (!there(device)) return cudaErrorInvalidDevice;
  *p = {};
  std::snprintf(p->name, sizeof p->name, "a host's stand-in for a CUDA device");
  p->uuid.bytes[0] = char(device + 1);
  p->totalGlobalMem = kMemory;
  p->sharedMemPerBlockOptin = 232448;
  p->maxThreadsPerBlock = 1024;
  p->major = 9;
  p->multiProcessorCount = kProcessors;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!there(device)) return cudaErrorInvalidDevice;
  *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
  return cudaSuccess;
}
API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (least) *least = 0;
  if (greatest) *greatest = -5;
  return cudaSuccess;
}
CALL(cudaDeviceCanAccessPeer, (int* can, int device, int peer),
     { *can = device != peer && setting("HOST_DEVICE_PEERS", 1); })
SUCCEEDS(cudaError_t, cudaDeviceEnablePeerAccess, (int, unsigned))

// Programs register their kernels when they are loaded. Those that somebody plays can be launched;
// operators.cpp takes the place of what would launch LibTorch's.
namespace {
using Make = Work (*)(const Launch&);
struct Kernel {
  std::string name;
  std::map<int, std::size_t> shared_bytes;  ///< a launch's most, by device; absent: 48 KiB
};
std::unordered_map<const void*, Kernel>& kernels = *new std::unordered_map<const void*, Kernel>;
std::map<std::string, Make>& played = *new std::map<std::string, Make>;

cudaError_t launch(const void* kernel, Launch how, cudaStream_t stream) {
  return call("cudaLaunchKernel", [&](Guard&) -> cudaError_t {
    const auto found = kernels.find(kernel);
    const std::string name = found == kernels.end() ? "unknown" : found->second.name;
    how.name = name.c_str();
    if (found != kernels.end()) {
      const auto most = found->second.shared_bytes.emplace(current_device, 48 << 10).first;
      if (how.shared_bytes > most->second) return cudaErrorInvalidValue;
    }
    for (const auto& [part, make] : played) {
      if (name.find(part) == std::string::npos) continue;
      return give(stream_of(stream), std::make_shared<Work>(make(how)));
    }
    violation("a kernel that only a GPU can run: %.300s", name.c_str());
    return cudaErrorNotSupported;
  });
}
}  // namespace
API void hostDevicePlay(const char* part, Make make) {
  played[part] = make;
}
API void** __cudaRegisterFatBinary(void* binary) {
  return reinterpret_cast<void**>(new void*(binary));
}
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, uint3*,
                                uint3*, dim3*, dim3*, int*) {
  kernels[host] = {name, {}};
}
API void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
API unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, CUstream_st*) {
  return 0;
}
SUCCEEDS(cudaError_t, __cudaPopCallConfiguration, (dim3*, dim3*, std::size_t*, void*))
SUCCEEDS(cudaError_t, __cudaGetKernel, (cudaKernel_t * kernel, const void* function),
         *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function)))
API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                   std::size_t shared_bytes, cudaStream_t stream) {
  return launch(kernel, {grid, block, arguments, shared_bytes}, stream);
}
API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* kernel,
                                    void** arguments) {
  Launch made{how->gridDim, how->blockDim, arguments, how->dynamicSmemBytes};
  for (unsigned i = 0; i < how->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = how->attrs[i];
    if (attribute.id == cudaLaunchAttributeClusterDimension)
      made.cluster = int(attribute.val.clusterDim.x);
    if (attribute.id == cudaLaunchAttributeProgrammaticStreamSerialization)
      made.early = attribute.val.programmaticStreamSerializationAllowed != 0;
  }
  return launch(kernel, made, how->stream);
}
// A library's kernels are known by their names alone: somebody plays them.
CALL(cudaLibraryLoadData,
     (cudaLibrary_t * library, const void*, cudaJitOption*, void**, unsigned, cudaLibraryOption*,
      void**, unsigned),
     {
       TRY(unsafe());
       *library = reinterpret_cast<cudaLibrary_t>(new char);
     })
CALL(cudaLibraryGetKernel, (cudaKernel_t * kernel, cudaLibrary_t, const char* name), {
  *kernel = reinterpret_cast<cudaKernel_t>(new char);
  kernels[*kernel] = {name, {}};
})
CALL(cudaFuncSetAttribute, (const void* kernel, cudaFuncAttribute, int bytes), {
  TRY(unsafe());
  kernels[kernel].shared_bytes[current_device] = std::size_t(bytes);
})
SUCCEEDS(cudaError_t, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags,
         (int* blocks, const void*, int, std::size_t, unsigned), *blocks = 2)

/// The number tells all that anybody asks.
API const char* cudaGetErrorString(cudaError_t error) {
  thread_local char words[32];
  std::snprintf(words, sizeof words, "CUDA error %d", int(error));
  return words;
}
API const char* cudaGetErrorName(cudaError_t error) {
  return cudaGetErrorString(error);
}

SUCCEEDS(CUresult, cuInit, (unsigned))
/// NVRTC asks, and takes no missing function for an answer.
API CUresult cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
SUCCEEDS(CUresult, cuDeviceGetCount, (int* count), *count = kDevices)
SUCCEEDS(CUresult, cuDevicePrimaryCtxGetState, (CUdevice, unsigned* flags, int* active), *flags = 0,
         *active = 1)
