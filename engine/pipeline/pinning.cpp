#include "engine/pipeline/pinning.h"

#include <pthread.h>
#include <sched.h>

#include <vector>

namespace millrace::engine {
namespace {

const std::vector<int>& cores() {
  static const std::vector<int> list = [] {
    std::vector<int> usable;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
      for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &set)) usable.push_back(core);
      }
    }
    return usable;
  }();
  return list;
}

}  // namespace

int usable_cores() {
  return cores().empty() ? 1 : int(cores().size());
}

void pin_this_thread(int index) {
  if (cores().empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores()[index % int(cores().size())], &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

}  // namespace millrace::engine
