#include "capture/program/cuda/compiler.h"

#include <c10/cuda/CUDAException.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <nvrtc.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "capture/program/cuda/sources.h"  // made of the kernels' files by CMake

namespace millrace::gpu {
namespace {

namespace fs = std::filesystem;

/// NVRTC comes with LibTorch, but nothing of LibTorch links it.
class Nvrtc {
 public:
  static const Nvrtc& get() {
    static const Nvrtc loaded;
    return loaded;
  }
  bool there() const { return missing_.empty(); }
  const std::string& missing() const { return missing_; }

#define FUNCTION(name) decltype(::nvrtc##name)* name = find<decltype(::nvrtc##name)>("nvrtc" #name)
 private:
  static constexpr const char* kLibrary =
      "libnvrtc.so.13";  // as the CUDA that LibTorch is built for
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
#undef FUNCTION
};

void check(nvrtcResult result, const char* what) {
  if (result != NVRTC_SUCCESS)
    throw std::runtime_error(std::string("NVRTC: ") + what + ": " +
                             Nvrtc::get().GetErrorString(result));
}

/// FNV-1a.
std::uint64_t hash(const std::string& text) {
  std::uint64_t made = 14695981039346656037u;
  for (const char c : text) made = (made ^ std::uint8_t(c)) * 1099511628211u;
  return made;
}

int architecture_of(int device) {
  int major = 0, minor = 0;
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  C10_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major * 10 + minor;
}

/// Kernels on disk, a file each: "NAME\nHASH OF THE BINARY\n" and the binary. What can't be read or
/// written is as if it were not there.
class Cache {
 public:
  Cache(const std::string& expression, int architecture) {
    const char* const own = std::getenv("XDG_CACHE_HOME");
    const char* const home = std::getenv("HOME");
    if ((!own || !*own) && !home) return;
    folder_ = (own && *own ? fs::path(own) : fs::path(home) / ".cache") / "millrace" / "kernels";
    int major = 0, minor = 0;
    Nvrtc::get().Version(&major, &minor);
    std::ostringstream key;
    key << expression << ' ' << architecture << ' ' << major << '.' << minor;
    for (const char* const source : kSources) key << source;
    std::ostringstream name;
    name << std::hex << hash(key.str());
    name_ = name.str();
  }

  bool read(Compiled& made) const {
    if (folder_.empty()) return false;
    std::ifstream file(folder_ / name_, std::ios::binary);
    std::string sum;
    if (!std::getline(file, made.name) || !std::getline(file, sum)) return false;
    made.binary.assign(std::istreambuf_iterator<char>(file), {});
    return sum == std::to_string(hash(made.binary));
  }

  void write(const Compiled& made) const {
    if (folder_.empty()) return;
    std::error_code ignored;
    fs::create_directories(folder_, ignored);
    const fs::path temporary = folder_ / (name_ + "." + std::to_string(getpid()));
    std::ofstream file(temporary, std::ios::binary);
    file << made.name << '\n' << hash(made.binary) << '\n' << made.binary;
    file.close();
    if (file) fs::rename(temporary, folder_ / name_, ignored);
    fs::remove(temporary, ignored);
  }

 private:
  fs::path folder_;
  std::string name_;
};

}  // namespace

std::string missing_compiler(int device) {
  if (!Nvrtc::get().there()) return Nvrtc::get().missing();
  const int architecture = architecture_of(device);
  return architecture < 80 ? "sm_" + std::to_string(architecture) + " is older than sm_80" : "";
}

Compiled compile(const std::string& expression, int architecture, bool tell_registers) {
  const Nvrtc& nvrtc = Nvrtc::get();
  if (!nvrtc.there()) throw std::runtime_error(nvrtc.missing());
  const std::string name = "millrace::gpu::" + expression;
  nvrtcProgram program = nullptr;
  check(nvrtc.CreateProgram(&program, kMain, "millrace.cu", std::size(kNames), kSources, kNames),
        "the program");
  struct Destroy {
    nvrtcProgram* program;
    ~Destroy() { Nvrtc::get().DestroyProgram(program); }
  } const destroy{&program};
  check(nvrtc.AddNameExpression(program, name.c_str()), name.c_str());
  const std::string target = "--gpu-architecture=sm_" + std::to_string(architecture);
  std::vector<const char*> options = {target.c_str(), "--std=c++20"};
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

const void* kernel(const std::string& expression, int device, std::size_t shared_bytes) {
  static std::mutex mutex;
  static std::map<std::pair<std::string, int>, const void*> kernels;
  const std::lock_guard lock(mutex);
  const int architecture = architecture_of(device);
  const void*& found = kernels[{expression, architecture}];
  if (!found) {
    const Cache cache(expression, architecture);
    Compiled made;
    if (!cache.read(made)) {
      made = compile(expression, architecture);
      cache.write(made);
    }
    cudaLibrary_t library = nullptr;  // for good
    cudaKernel_t loaded = nullptr;
    C10_CUDA_CHECK(cudaLibraryLoadData(&library, made.binary.data(), nullptr, nullptr, 0, nullptr,
                                       nullptr, 0));
    C10_CUDA_CHECK(cudaLibraryGetKernel(&loaded, library, made.name.c_str()));
    found = loaded;
  }
  C10_CUDA_CHECK(
      cudaFuncSetAttribute(found, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared_bytes)));
  return found;
}

}  // namespace millrace::gpu
