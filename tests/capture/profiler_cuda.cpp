// Stands in for a profiler: a library that NVTX loads by NVTX_INJECTION64_PATH and tells of every
// range. It writes a line each to the file that RANGES_FILE names.
#include <nvtx3/nvToolsExt.h>  // the interface of such libraries

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace {

std::FILE* told = nullptr;

nvtxDomainHandle_t on_domain(const char* name) {
  std::fprintf(told, "domain %s\n", name);
  static int ours;
  return reinterpret_cast<nvtxDomainHandle_t>(&ours);
}

int on_push(nvtxDomainHandle_t, const nvtxEventAttributes_t* range) {
  std::fprintf(told, "%ld push %s\n", long(syscall(SYS_gettid)), range->message.ascii);
  return 0;
}

int on_pop(nvtxDomainHandle_t) {
  std::fprintf(told, "%ld pop\n", long(syscall(SYS_gettid)));
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t get_table) {
  const char* const path = std::getenv("RANGES_FILE");
  told = path ? std::fopen(path, "w") : nullptr;
  if (!told) return 0;
  const auto* callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
    return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = reinterpret_cast<NvtxFunctionPointer>(on_domain);
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = reinterpret_cast<NvtxFunctionPointer>(on_push);
  *table[NVTX_CBID_CORE2_DomainRangePop] = reinterpret_cast<NvtxFunctionPointer>(on_pop);
  return 1;
}
