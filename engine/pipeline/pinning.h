#pragma once

#include <pthread.h>
#include <sched.h>

#include <future>
#include <vector>

namespace millrace::engine {

/// The cores in this process's affinity mask, as they were at the first call.
inline const std::vector<int>& usable_core_list() {
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

inline int usable_cores() {
  return usable_core_list().empty() ? 1 : int(usable_core_list().size());
}

/// Pins the calling thread to the `index`-th usable core (modulo their number). Where the system
/// refuses, it stays unpinned: slower perhaps, never wrong.
inline void pin_this_thread(int index) {
  const std::vector<int>& cores = usable_core_list();
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores[index % int(cores.size())], &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/// Runs `work` on another thread, pinned to the `index`-th core, and returns or rethrows what it
/// returns or throws. The caller, and threads it starts later, stay unpinned.
template <class Work>
auto on_core(int index, const Work& work) {
  return std::async(std::launch::async,
                    [&] {
                      pin_this_thread(index);
                      return work();
                    })
      .get();
}

}  // namespace millrace::engine
