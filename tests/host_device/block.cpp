#include "tests/host_device/block.h"

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

namespace host_device {
namespace {

constexpr std::size_t kStack = 48 << 10;
constexpr std::size_t kGuard = 64;  ///< floats behind shared memory that nobody may write

struct Copy {
  float* to;
  const float* from;
  int floats;
  bool there;
};

/// A thread of a block. Its first turn comes by setcontext(), later ones by longjmp(), which asks
/// the kernel of the host nothing.
struct Fiber {
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStack);
  ucontext_t context;
  jmp_buf here;
  bool started = false, over = true;
  std::vector<Copy> copies;          ///< that have not arrived
  std::vector<std::size_t> commits;  ///< the number of copies until each, of those not waited for
};

struct Block {
  std::vector<Fiber> fibers{1024};
  std::vector<float> shared;
  const std::vector<Range>* memory = nullptr;
  const std::function<void()>* body = nullptr;
  jmp_buf scheduler;
  std::minstd_rand random;
};
thread_local Block* current __attribute__((tls_model("initial-exec"))) = nullptr;

Fiber& fiber() {
  return current->fibers[std::size_t(turn.thread)];
}

/// A thread of each block, again and again.
void enter() {
  for (;;) {
    (*current->body)();
    fiber().over = true;
    meet();
  }
}

/// Until it meets the others, or its end.
void run(int thread) {
  turn.thread = thread;
  Fiber& next = fiber();
  if (_setjmp(current->scheduler) != 0) return;
  if (next.started) _longjmp(next.here, 1);
  next.started = true;
  getcontext(&next.context);
  next.context.uc_stack = {.ss_sp = next.stack.get(), .ss_flags = 0, .ss_size = kStack};
  next.context.uc_link = nullptr;
  makecontext(&next.context, enter, 0);
  setcontext(&next.context);
}

void run_block(int threads) {
  std::fill(current->shared.begin(), current->shared.end(),
            std::numeric_limits<float>::signaling_NaN());
  std::vector<int> order(static_cast<std::size_t>(threads));
  std::iota(order.begin(), order.end(), 0);
  for (const int i : order) {
    Fiber& next = current->fibers[std::size_t(i)];
    next.over = false;
    next.copies.clear();
    next.commits.clear();
  }
  while (!order.empty()) {
    switch (current->random() % 3) {
      case 0:
        std::reverse(order.begin(), order.end());
        break;
      case 1:
        std::shuffle(order.begin(), order.end(), current->random);
        break;
    }
    for (const int i : order) run(i);
    std::erase_if(order, [](int i) { return current->fibers[std::size_t(i)].over; });
  }
}

bool is_guard(float value) {
  const float guard = std::numeric_limits<float>::signaling_NaN();
  return std::memcmp(&value, &guard, sizeof guard) == 0;
}

void check(const Copy& copy) {
  const std::size_t bytes = std::size_t(copy.floats) * sizeof(float);
  const auto misaligned = [&](const void* at) {
    return reinterpret_cast<std::size_t>(at) % bytes != 0;
  };
  if (misaligned(copy.to) || misaligned(copy.from))
    return hostDeviceFault("an asynchronous copy is not aligned");
  const float* const end = current->shared.data() + current->shared.size() - kGuard;
  if (copy.to < current->shared.data() || copy.to + copy.floats > end)
    return hostDeviceFault("an asynchronous copy writes outside shared memory");
  const auto* const from = reinterpret_cast<const char*>(copy.from);
  for (const Range& range : *current->memory) {
    const auto* const begin = static_cast<const char*>(range.at);
    if (from >= begin && from + bytes <= begin + range.bytes) return;
  }
  hostDeviceFault("an asynchronous copy reads outside the kernel's memory");
}

}  // namespace

void run_blocks(int blocks, int threads, std::size_t shared_bytes, const std::vector<Range>& memory,
                const std::function<void()>& thread) {
  static thread_local Block block;
  current = &block;
  block.shared.assign(shared_bytes / sizeof(float) + kGuard, 0);
  block.memory = &memory;
  block.body = &thread;
  turn.shared = block.shared.data();
  for (turn.block = 0; turn.block < blocks; ++turn.block) {
    run_block(threads);
    if (!std::all_of(block.shared.end() - kGuard, block.shared.end(), is_guard))
      return hostDeviceFault("a kernel writes behind its shared memory");
  }
}

constinit thread_local Turn turn;

void meet() {
  if (_setjmp(fiber().here) == 0) _longjmp(current->scheduler, 1);
}

void copy_async(float* to, const float* from, int floats, bool there) {
  fiber().copies.push_back({to, from, floats, there});
  check(fiber().copies.back());
}
void commit() {
  fiber().commits.push_back(fiber().copies.size());
}
void wait(int open) {
  Fiber& of = fiber();
  if (of.commits.size() <= std::size_t(open)) return;
  const auto last = of.commits.end() - open;
  const std::size_t arrived = last[-1];
  for (std::size_t n = 0; n < arrived; ++n) {
    const Copy& copy = of.copies[n];
    for (int i = 0; i < copy.floats; ++i) copy.to[i] = copy.there ? copy.from[i] : 0;
  }
  of.copies.erase(of.copies.begin(), of.copies.begin() + std::ptrdiff_t(arrived));
  of.commits.erase(of.commits.begin(), last);
  for (std::size_t& count : of.commits) count -= arrived;
}

}  // namespace host_device
