#pragma once

#include <future>

namespace millrace::engine {

/// Cores in this process's affinity mask.
int usable_cores();

/// Pins the calling thread to the `index`-th usable core (modulo their number). Where the system
/// refuses, it stays unpinned: slower perhaps, never wrong.
void pin_this_thread(int index);

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
