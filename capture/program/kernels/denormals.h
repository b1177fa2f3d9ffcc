// Denormals, which slow some processors down a hundredfold.
#pragma once

#include <cstdint>

namespace millrace::kernels {

/// While it lives, this thread flushes denormals to zero, on x86 and 64-bit ARM. Vanishing
/// gradients and running means reach them sooner or later.
class DenormalsAreZeros {
 public:
  DenormalsAreZeros() : before_(get()) { set(before_ | kBits); }
  ~DenormalsAreZeros() { set(before_); }
  DenormalsAreZeros(const DenormalsAreZeros&) = delete;
  DenormalsAreZeros& operator=(const DenormalsAreZeros&) = delete;

 private:
#if defined(__SSE2__)
  using Control = std::uint32_t;
  static constexpr Control kBits = 0x8040;  // MXCSR: flush to zero, denormals are zeros
  static Control get() {
    return __builtin_ia32_stmxcsr();
  }
  static void set(Control control) {
    __builtin_ia32_ldmxcsr(control);
  }
#elif defined(__aarch64__)
  using Control = std::uint64_t;
  static constexpr Control kBits = Control(1) << 24;  // FPCR: flush to zero
  static Control get() {
    Control control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
  }
  static void set(Control control) {
    asm volatile("msr fpcr, %0" ::"r"(control));
  }
#else
  using Control = int;
  static constexpr Control kBits = 0;
  static Control get() {
    return 0;
  }
  static void set(Control) {}
#endif
  const Control before_;
};

}  // namespace millrace::kernels
