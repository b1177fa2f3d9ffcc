// What LibTorch links or looks up at its start, and this device does not do. Without CUDA's
// headers, since the parameters don't matter.
namespace host_device {
void violation(const char* format, ...);
}

#define NOT_DONE(name)                                              \
  extern "C" __attribute__((visibility("default"))) int name() {    \
    host_device::violation("%s is not done by this device", #name); \
    return 801; /* not supported */                                 \
  }
NOT_DONE(cudaDeviceGetDefaultMemPool)
NOT_DONE(cudaFreeAsync)
NOT_DONE(cudaGetSymbolAddress)
NOT_DONE(cudaGraphDebugDotPrint)
NOT_DONE(cudaGraphNodeGetDependencies)
NOT_DONE(cudaHostRegister)
NOT_DONE(cudaHostUnregister)
NOT_DONE(cudaIpcCloseMemHandle)
NOT_DONE(cudaIpcGetEventHandle)
NOT_DONE(cudaIpcGetMemHandle)
NOT_DONE(cudaIpcOpenEventHandle)
NOT_DONE(cudaIpcOpenMemHandle)
NOT_DONE(cudaMallocAsync)
NOT_DONE(cudaMemcpy2DAsync)
NOT_DONE(cudaMemcpyToSymbol)
NOT_DONE(cudaMemPoolGetAttribute)
NOT_DONE(cudaMemPoolSetAccess)
NOT_DONE(cudaMemPoolSetAttribute)
NOT_DONE(cudaMemPoolTrimTo)
NOT_DONE(cuMemAddressFree)
NOT_DONE(cuMemAddressReserve)
NOT_DONE(cuMemCreate)
NOT_DONE(cuMemExportToShareableHandle)
NOT_DONE(cuMemGetAllocationGranularity)
NOT_DONE(cuMemGetAllocationPropertiesFromHandle)
NOT_DONE(cuMemImportFromShareableHandle)
NOT_DONE(cuMemMap)
NOT_DONE(cuMemRelease)
NOT_DONE(cuMemRetainAllocationHandle)
NOT_DONE(cuMemSetAccess)
NOT_DONE(cuMemUnmap)
NOT_DONE(cuMemsetD32Async)
NOT_DONE(cuStreamWriteValue32)
