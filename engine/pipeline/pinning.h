// Threads stay on their core.
#pragma once

#include <future>

namespace millrace::engine {

/// Cores this process may use.
int usable_cores();

/// Pins the calling thread to the `index`-th usable core (modulo their number). Where the system
/// refuses, the thread stays unpinned: slower perhaps, never wrong.
void pin_this_thread(int index);

/// Runs `work` on a thread of its own, pinned to the `index`-th core, and returns what it returns or
/// throws: the caller, and every thread it starts later, stays unpinned.
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
