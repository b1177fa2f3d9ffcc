// NVRTC that stops before code generation: the host device calls a kernel by its lowered name and
// runs this machine's code. Compiles for real where the log of registers is asked for.
#include <dlfcn.h>
#include <nvrtc.h>  // declares what is defined here

#include <algorithm>
#include <cstring>
#include <vector>

namespace {

template <class Function>
Function* real(Function*, const char* name) {
  static void* const library = dlopen(MILLRACE_NVRTC, RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<Function*>(dlsym(library, name));
}
#define REAL(name) real(&name, #name)

}  // namespace

#define FORWARD(result, name, parameters, ...) \
  result name parameters {                     \
    return REAL(name)(__VA_ARGS__);            \
  }
FORWARD(const char*, nvrtcGetErrorString, (nvrtcResult error), error)
FORWARD(nvrtcResult, nvrtcVersion, (int* major, int* minor), major, minor)
FORWARD(nvrtcResult, nvrtcGetNumSupportedArchs, (int* count), count)
FORWARD(nvrtcResult, nvrtcGetSupportedArchs, (int* known), known)
FORWARD(nvrtcResult, nvrtcCreateProgram,
        (nvrtcProgram * program, const char* source, const char* name, int count,
         const char* const* headers, const char* const* names),
        program, source, name, count, headers, names)
FORWARD(nvrtcResult, nvrtcDestroyProgram, (nvrtcProgram * program), program)
FORWARD(nvrtcResult, nvrtcAddNameExpression, (nvrtcProgram program, const char* name), program,
        name)
FORWARD(nvrtcResult, nvrtcGetLoweredName,
        (nvrtcProgram program, const char* name, const char** lowered), program, name, lowered)
FORWARD(nvrtcResult, nvrtcGetProgramLogSize, (nvrtcProgram program, size_t* size), program, size)
FORWARD(nvrtcResult, nvrtcGetProgramLog, (nvrtcProgram program, char* log), program, log)
FORWARD(nvrtcResult, nvrtcGetCUBINSize, (nvrtcProgram program, size_t* size), program, size)
FORWARD(nvrtcResult, nvrtcGetCUBIN, (nvrtcProgram program, char* binary), program, binary)

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int count, const char* const* given) {
  std::vector<const char*> options(given, given + count);
  const auto told = [](const char* option) { return std::strstr(option, "--ptxas-options"); };
  if (std::none_of(options.begin(), options.end(), told)) {
    options[0] = "--gpu-architecture=compute_90";  // the one that the host device is
    options.push_back("-dlto");
  }
  return REAL(nvrtcCompileProgram)(program, int(options.size()), options.data());
}
