// A fuzz target: a function of bytes that must neither crash nor report anything, whatever they
// are.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>

namespace millrace::fuzz {

/// `text` as a file in memory; the same path for every input of a process.
inline std::string as_file(const std::string& text) {
  static const std::string path = [] {
    const int file = memfd_create("input", MFD_CLOEXEC);
    if (file < 0) std::abort();
    return "/proc/self/fd/" + std::to_string(file);
  }();
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  return path;
}

}  // namespace millrace::fuzz

/// Defines the target `name`, for the test that replays seeds or for libFuzzer.
#ifdef MILLRACE_FUZZER
#define MILLRACE_FUZZ(name)                                                            \
  void fuzz_##name(const std::string& text);                                           \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) { \
    fuzz_##name(std::string(reinterpret_cast<const char*>(bytes), size));              \
    return 0;                                                                          \
  }                                                                                    \
  void fuzz_##name(const std::string& text)
#else
#define MILLRACE_FUZZ(name)                  \
  void fuzz_##name(const std::string& text); \
  void fuzz_##name(const std::string& text)
#endif
