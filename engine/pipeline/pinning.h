#pragma once

#include <pthread.h>
#include <sched.h>

#include <future>
#include <string>
#include <vector>

namespace millrace::engine {

/// The cores in this process's affinity mask at the first call.
inline const std::vector<int>& cores_of_process() {
  static const std::vector<int> cores = [] {
    std::vector<int> usable;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return usable;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) usable.push_back(core);
    }
    return usable;
  }();
  return cores;
}

/// Cores in this process's affinity mask.
inline int usable_cores() {
  return cores_of_process().empty() ? 1 : int(cores_of_process().size());
}

/// Pins the calling thread to the `index`-th usable core (modulo their number). Where the system
/// refuses, it stays unpinned: slower perhaps, never wrong.
inline void pin_this_thread(int index) {
  const std::vector<int>& cores = cores_of_process();
  if (cores.empty()) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cores[std::size_t(index) % cores.size()], &set);
  pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

/// For debuggers and profilers; up to 15 characters.
inline void name_this_thread(const std::string& name) {
  pthread_setname_np(pthread_self(), name.c_str());
}

/// Runs `work` on another thread, pinned to the `index`-th core, and returns its result or rethrows
/// its exception. The caller, and threads it starts later, stay unpinned.
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
