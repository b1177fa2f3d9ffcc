// How much of this machine's cores others took meanwhile.
#pragma once

#include <chrono>  // wall-clock

namespace millrace::bench {

/// Counts from its construction on: CPU time of the whole machine (also what a hypervisor gave to
/// others) less this process's own, in the kernel's ticks of about 10 ms.
class OtherLoad {
 public:
  OtherLoad();
  /// Cores that others kept busy so far, 0 where the system does not tell.
  double cores() const;

 private:
  static double others_s();
  std::chrono::steady_clock::time_point start_;
  double before_s_;
};

}  // namespace millrace::bench
