#include "capture/program/cuda/compiler.h"

#include <c10/util/ScopeExit.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <future>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "capture/check_cuda.h"
#include "capture/program/cuda/cache.h"

#include "capture/program/cuda/sources.h"  // generated from the kernel sources by CMake

namespace millrace::gpu {
namespace {

/// NVRTC comes with LibTorch, which doesn't link it.
class Nvrtc {
 public:
  static const Nvrtc& get() {
    static const Nvrtc loaded;
    return loaded;
  }
  const std::string& missing() const { return missing_; }  ///< that can't be loaded; empty: none is

#define FUNCTION(name) decltype(::nvrtc##name)* name = find<decltype(::nvrtc##name)>("nvrtc" #name)
 private:
  static constexpr const char* kLibrary =
      "libnvrtc.so.13";  // of the CUDA that LibTorch is built for
  void* const library_ = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  std::string missing_ = library_ ? "" : std::string("no ") + kLibrary;
  template <class Function>
  Function* find(const char* name) {
    auto* const found = library_ ? reinterpret_cast<Function*>(dlsym(library_, name)) : nullptr;
    if (library_ && !found) missing_ = std::string("no ") + name + " in NVRTC";
    return found;
  }

 public:
  FUNCTION(Version);
  FUNCTION(CreateProgram);
  FUNCTION(DestroyProgram);
  FUNCTION(AddNameExpression);
  FUNCTION(CompileProgram);
  FUNCTION(GetLoweredName);
  FUNCTION(GetCUBINSize);
  FUNCTION(GetCUBIN);
  FUNCTION(GetProgramLogSize);
  FUNCTION(GetProgramLog);
  FUNCTION(GetErrorString);
  FUNCTION(GetNumSupportedArchs);
  FUNCTION(GetSupportedArchs);
#undef FUNCTION
};

void check(nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS)
    throw std::runtime_error(std::string("NVRTC: ") + what + ": " +
                             Nvrtc::get().GetErrorString(result));
}

int architecture_of(int device) {
  int major = 0, minor = 0;
  MILLRACE_CHECK_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  MILLRACE_CHECK_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major * 10 + minor;
}

std::string key_of(const std::string& expression, int architecture) {
  int major = 0, minor = 0;
  Nvrtc::get().Version(&major, &minor);
  return expression + " sm_" + std::to_string(architecture) + ' ' + std::to_string(major) + '.' +
         std::to_string(minor);
}

bool read_compiled(const std::string& key, Compiled& made) {
  std::string content;
  if (!read_cached(key, content) || content.find('\n') == content.npos) return false;
  made.name = content.substr(0, content.find('\n'));
  made.binary = content.substr(made.name.size() + 1);
  return true;
}

std::mutex mutex;
struct Loaded {
  const void* kernel = nullptr;
  std::map<int, std::size_t> shared_bytes;  ///< a launch's most, by device
};
std::map<std::pair<std::string, int>, Loaded> loaded;  ///< by expression and architecture

Loaded load(const Compiled& made) {
  cudaLibrary_t library = nullptr;  // never unloaded
  cudaKernel_t kernel = nullptr;
  MILLRACE_CHECK_CUDA(
      cudaLibraryLoadData(&library, made.binary.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  MILLRACE_CHECK_CUDA(cudaLibraryGetKernel(&kernel, library, made.name.c_str()));
  return {.kernel = kernel};
}

}  // namespace

std::string missing_compiler(int device) {
  if (!Nvrtc::get().missing().empty()) return Nvrtc::get().missing();
  const int architecture = architecture_of(device);
  const std::string name = "sm_" + std::to_string(architecture);
  if (architecture < 80) return name + " is older than sm_80";
  int count = 0;
  check(Nvrtc::get().GetNumSupportedArchs(&count), "architectures");
  std::vector<int> known(std::size_t(count), 0);
  check(Nvrtc::get().GetSupportedArchs(known.data()), "architectures");
  const bool knows = std::find(known.begin(), known.end(), architecture) != known.end();
  return knows ? "" : name + " is newer than NVRTC";
}

Compiled compile(const std::string& expression, int architecture, bool tell_registers) {
  const Nvrtc& nvrtc = Nvrtc::get();
  if (!nvrtc.missing().empty()) throw std::runtime_error(nvrtc.missing());
  const std::string name = "millrace::gpu::" + expression;
  nvrtcProgram program = nullptr;
  check(nvrtc.CreateProgram(&program, kMain, "millrace.cu", std::size(kNames), kSources, kNames),
        "the program");
  const auto destroy = c10::make_scope_exit([&] { nvrtc.DestroyProgram(&program); });
  check(nvrtc.AddNameExpression(program, name.c_str()), name.c_str());
  const std::string target = "--gpu-architecture=sm_" + std::to_string(architecture);
  // Kernels call fma explicitly where they want it. Lambdas of formulas bear no __device__.
  std::vector<const char*> options = {target.c_str(), "--std=c++20", "--fmad=false",
                                      "--device-as-default-execution-space"};
  if (tell_registers) options.push_back("--ptxas-options=-v");
  const nvrtcResult result = nvrtc.CompileProgram(program, int(options.size()), options.data());
  std::size_t size = 0;
  Compiled made;
  nvrtc.GetProgramLogSize(program, &size);
  made.log.resize(size);
  nvrtc.GetProgramLog(program, made.log.data());
  if (result != NVRTC_SUCCESS) throw std::runtime_error("NVRTC: " + name + ": " + made.log);
  const char* lowered = nullptr;
  check(nvrtc.GetLoweredName(program, name.c_str(), &lowered), name.c_str());
  made.name = lowered;
  check(nvrtc.GetCUBINSize(program, &size), name.c_str());
  made.binary.resize(size);
  check(nvrtc.GetCUBIN(program, made.binary.data()), name.c_str());
  return made;
}

void prepare_kernels(const std::vector<std::string>& expressions, int device) {
  const int architecture = architecture_of(device);
  const std::lock_guard lock(mutex);
  std::map<std::string, Compiled> made;
  for (const std::string& expression : expressions) {
    if (!loaded.count({expression, architecture})) made.try_emplace(expression);
  }
  std::vector<std::pair<const std::string, Compiled>*> missing;
  for (auto& one : made) {
    if (!read_compiled(key_of(one.first, architecture), one.second)) missing.push_back(&one);
  }
  static std::atomic<bool> said = false;
  constexpr std::size_t kFew = 3;  // done soon
  if (missing.size() > kFew && !said.exchange(true))
    std::fprintf(stderr, "compiling kernels for the GPU, %d at first; later starts have them\n",
                 int(missing.size()));
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (std::size_t i; (i = next++) < missing.size();) {
      try {
        auto& [expression, one] = *missing[i];
        one = compile(expression, architecture);
        write_cached(key_of(expression, architecture), one.name + '\n' + one.binary);
      } catch (...) {
        next = missing.size();
        throw;
      }
    }
  };
  std::vector<std::future<void>> others;
  const std::size_t count =
      std::min<std::size_t>(std::max(1u, std::thread::hardware_concurrency()), missing.size());
  for (std::size_t i = 1; i < count; ++i) others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  for (const auto& [expression, one] : made) loaded[{expression, architecture}] = load(one);
}

const void* kernel(const std::string& expression, int device, std::size_t shared_bytes) {
  prepare_kernels({expression}, device);
  const std::lock_guard lock(mutex);
  Loaded& found = loaded[{expression, architecture_of(device)}];
  // The limit is the kernel's: who asks for less must not lower it for the others.
  std::size_t& most = found.shared_bytes[device];
  if (shared_bytes > most) {
    MILLRACE_CHECK_CUDA(cudaFuncSetAttribute(
        found.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)));
    most = shared_bytes;
  }
  return found.kernel;
}

}  // namespace millrace::gpu
