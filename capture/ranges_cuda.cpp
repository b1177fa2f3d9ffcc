#include "capture/ranges.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>  // header-only, does nothing without a profiler

namespace millrace::capture {
namespace {

/// Null without a profiler.
nvtxDomainHandle_t domain() {
  static const nvtxDomainHandle_t ours = nvtxDomainCreateA("millrace");
  return ours;
}

}  // namespace

bool profiler_attached() {
  return domain() != nullptr;
}

void push_range(const char* name) {
  nvtxEventAttributes_t range = {};
  range.version = NVTX_VERSION;
  range.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  range.messageType = NVTX_MESSAGE_TYPE_ASCII;
  range.message.ascii = name;
  nvtxDomainRangePushEx(domain(), &range);
}

void pop_range() {
  nvtxDomainRangePop(domain());
}

}  // namespace millrace::capture

#else  // no NVTX

namespace millrace::capture {

bool profiler_attached() {
  return false;
}
void push_range(const char*) {}
void pop_range() {}

}  // namespace millrace::capture
#endif
