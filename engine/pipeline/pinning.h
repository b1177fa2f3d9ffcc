// Threads stay on their core.
#pragma once

namespace millrace::engine {

/// Cores this process may use.
int usable_cores();

/// Pins the calling thread to the `index`-th usable core (modulo their number). Where the system
/// refuses, the thread stays unpinned: slower perhaps, never wrong.
void pin_this_thread(int index);

}  // namespace millrace::engine
