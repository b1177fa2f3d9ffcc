#include "tools/bench/other_load.h"

#include <sys/resource.h>  // own CPU time
#include <unistd.h>        // ticks a second

#include <algorithm>  // max
#include <fstream>    // /proc/stat
#include <string>     // its first word

namespace millrace::bench {

OtherLoad::OtherLoad() : start_(std::chrono::steady_clock::now()), before_s_(others_s()) {}

double OtherLoad::cores() const {
  const double wall =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  return wall > 0 ? std::max(0.0, others_s() - before_s_) / wall : 0;
}

double OtherLoad::others_s() {
  std::ifstream stat("/proc/stat");
  std::string word;
  double user = 0, nice = 0, system = 0, idle = 0, io = 0, irq = 0, softirq = 0, steal = 0;
  if (!(stat >> word >> user >> nice >> system >> idle >> io >> irq >> softirq >> steal)) return 0;
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + double(t.tv_usec) * 1e-6; };
  return (user + nice + system + irq + softirq + steal) / double(sysconf(_SC_CLK_TCK)) -
         seconds(own.ru_utime) - seconds(own.ru_stime);
}

}  // namespace millrace::bench
