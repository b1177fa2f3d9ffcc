#include "tests/host_device/block.h"

#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

namespace host_device {
namespace {

/// Not a power of two, or all stacks would compete for one cache set.
constexpr std::size_t kStack = (48 << 10) + 448;
constexpr std::size_t kGuard = 64;  ///< floats behind shared memory that nobody may write
constexpr int kLanes = 32;

struct Copy {
  float* to;
  const float* from;
  int floats;
  bool there;
};

enum class State { ready, at_warp, at_block, at_cluster, over };

using Place = void* [5];  ///< for __builtin_setjmp(), several times as fast as the C library's

/// A thread of a cluster. Its first turn comes by setcontext(), later ones by a jump, which asks
/// the kernel of the host nothing.
struct Fiber {
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStack);
  Place here;
  bool begun = false;  ///< a fiber serves many kernels
  bool waited;         ///< for the launch before
  bool says;           ///< in meet_any()
  std::deque<std::vector<Copy>>
      groups;  ///< copies that have not arrived; the last is not committed
  // A product that its warp makes together.
  std::array<unsigned, 4> a;
  std::array<unsigned, 2> b;
  float* sums;
  bool halves;
};

struct Cluster {
  std::vector<std::unique_ptr<Fiber>> fibers;  ///< [block][thread]
  std::vector<State> states;                   ///< of them, side by side to be looked through
  std::vector<float> shared;                   ///< of all blocks
  std::size_t floats = 0;                      ///< of one, with its guard
  int threads = 0, running = 0;                ///< of a block; the fiber whose turn it is
  const std::vector<Range>* memory = nullptr;
  const std::function<void()>* body = nullptr;
  Place scheduler;
  std::minstd_rand random;
};
thread_local Cluster* current __attribute__((tls_model("initial-exec"))) = nullptr;

Fiber& fiber(int index) {
  return *current->fibers[std::size_t(index)];
}
State& state(int index) {
  return current->states[std::size_t(index)];
}
Fiber& self() {
  return fiber(current->running);
}

/// A function of its own, as GCC wants it: not where a place was taken.
[[noreturn, gnu::noinline]] void jump(Place& to) {
  __builtin_longjmp(to, 1);
}

/// Until the others are there. Unlike other calls, it leaves no register as it was.
[[gnu::noipa]] void rest(State until) {
  state(current->running) = until;
  if (__builtin_setjmp(self().here) == 0) jump(current->scheduler);
}

/// A thread of each cluster, again and again.
void enter() {
  for (;;) {
    (*current->body)();
    rest(State::over);
  }
}

/// Until it rests.
void run(int index, int first_block) {
  Fiber& next = fiber(index);
  current->running = index;
  turn.thread = index % current->threads;
  turn.rank = index / current->threads;
  turn.block = first_block + turn.rank;
  turn.shared = current->shared.data() + std::size_t(turn.rank) * current->floats;
  if (__builtin_setjmp(current->scheduler) != 0) return;
  if (next.begun) jump(next.here);
  next.begun = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack = {.ss_sp = next.stack.get(), .ss_flags = 0, .ss_size = kStack};
  context.uc_link = nullptr;
  makecontext(&context, enter, 0);
  setcontext(&context);
}

/// Lets those that rest in `where` go on, group by group of so many: where all of a group do that
/// are not over. Whether any may.
bool release(State where, int group) {
  bool any = false;
  const auto count = std::ptrdiff_t(current->states.size());
  for (std::ptrdiff_t first = 0; first < count; first += group) {
    const auto begin = current->states.begin() + first,
               end = current->states.begin() + std::min<std::ptrdiff_t>(first + group, count);
    const auto resting = std::count(begin, end, where);
    if (resting == 0 || resting + std::count(begin, end, State::over) < end - begin) continue;
    std::replace(begin, end, where, State::ready);
    any = true;
  }
  return any;
}

/// In an order that changes, each that is ready runs until it rests. Whether any is left.
bool run_round(std::vector<int>& order, int first_block) {
  switch (current->random() % 3) {
    case 0:
      std::reverse(order.begin(), order.end());
      break;
    case 1:
      std::shuffle(order.begin(), order.end(), current->random);
      break;
  }
  for (const int i : order) {
    if (state(i) == State::ready) run(i, first_block);
  }
  const auto& states = current->states;
  return std::any_of(states.begin(), states.end(), [](State s) { return s != State::over; });
}

void run_cluster(int first_block, bool early) {
  const int count = turn.cluster * current->threads;
  std::fill(current->shared.begin(), current->shared.end(),
            std::numeric_limits<float>::signaling_NaN());
  std::vector<int> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  current->states.assign(order.size(), State::ready);
  for (const int i : order) {
    fiber(i).waited = false;
    fiber(i).groups.assign(1, {});
  }
  while (run_round(order, first_block)) {
    if (release(State::at_block, current->threads) || release(State::at_cluster, count)) continue;
    const auto& states = current->states;
    if (std::find(states.begin(), states.end(), State::ready) != states.end()) continue;
    current->fibers.clear();  // they are within a kernel
    return hostDeviceFault("a kernel's threads wait for others that do not come");
  }
  if (early && std::any_of(order.begin(), order.end(), [](int i) { return !fiber(i).waited; }))
    hostDeviceFault("a kernel comes early and does not wait");
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
  if (copy.to < turn.shared || copy.to + copy.floats > turn.shared + current->floats - kGuard)
    return hostDeviceFault("an asynchronous copy writes outside shared memory");
  if (!copy.there) return;
  const auto* const from = reinterpret_cast<const char*>(copy.from);
  for (const Range& range : *current->memory) {
    const auto* const begin = static_cast<const char*>(range.at);
    if (from >= begin && from + bytes <= begin + range.bytes) return;
  }
  hostDeviceFault("an asynchronous copy reads outside the kernel's memory");
}

/// Of a register: the number at a depth, of those that it holds.
float number(unsigned held, int i, bool halves) {
  if (!halves) return std::bit_cast<float>(held & 0xffffe000u);
  return std::bit_cast<float>(i == 0 ? held << 16 : held & 0xffff0000u);
}

/// The product of a warp whose lanes are all there.
void multiply_warp(int first) {
  const bool halves = fiber(first).halves;
  const int pairs = halves ? 2 : 1;
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float& to = fiber(first + row % 8 * 4 + column / 2).sums[row / 8 * 2 + column % 2];
      double sum = to;
      for (int lane = 0; lane < 4; ++lane) {
        for (int deep = 0; deep < 2; ++deep) {
          const unsigned a = fiber(first + row % 8 * 4 + lane).a[std::size_t(row / 8 + deep * 2)];
          const unsigned b = fiber(first + column * 4 + lane).b[std::size_t(deep)];
          for (int i = 0; i < pairs; ++i)
            sum += double(number(a, i, halves)) * double(number(b, i, halves));
        }
      }
      to = float(sum);
    }
  }
}

}  // namespace

void run_blocks(const Launch& launch, const std::vector<Range>& memory,
                const std::function<void()>& thread) {
  static thread_local Cluster cluster;
  current = &cluster;
  turn.cluster = launch.cluster;
  cluster.threads = int(launch.block.x);
  while (int(cluster.fibers.size()) < turn.cluster * cluster.threads)
    cluster.fibers.push_back(std::make_unique<Fiber>());
  cluster.floats = (launch.shared_bytes / sizeof(float) + 3) / 4 * 4 + kGuard;
  cluster.shared.assign(cluster.floats * std::size_t(turn.cluster), 0);
  cluster.memory = &memory;
  cluster.body = &thread;
  const int across = int(launch.grid.x), down = int(launch.grid.y);
  for (int first = 0; first < across * down * int(launch.grid.z); first += turn.cluster) {
    turn.y = first / across % down;
    turn.z = first / across / down;
    run_cluster(first % across, launch.early);
    for (int rank = 1; rank <= turn.cluster; ++rank) {
      const auto end = cluster.shared.begin() + std::ptrdiff_t(rank * cluster.floats);
      if (!std::all_of(end - kGuard, end, is_guard))
        return hostDeviceFault("a kernel writes behind its shared memory");
    }
  }
}

constinit thread_local Turn turn;

namespace {

void begin_copy(float* to, const float* from, int floats, bool there) {
  std::vector<Copy>& group = self().groups.back();
  group.push_back({to, from, floats, there});
  check(group.back());
}

/// By the last of a warp's lanes, when all others are there.
void multiply(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, bool halves) {
  Fiber& own = self();
  std::copy(a, a + 4, own.a.begin());
  own.b = {b0, b1};
  own.sums = sums;
  own.halves = halves;
  const int first = current->running - turn.thread % kLanes;
  int there = 1;
  for (int i = first; i < first + kLanes; ++i) {
    there += state(i) == State::at_warp;
    if (state(i) == State::at_warp && fiber(i).halves != halves)
      hostDeviceFault("the lanes of a warp part");
  }
  if (there < kLanes) return rest(State::at_warp);
  multiply_warp(first);
  for (int i = first; i < first + kLanes; ++i) state(i) = State::ready;
}

}  // namespace
}  // namespace host_device

namespace millrace::gpu {

using namespace host_device;

void wait_for_last() {
  self().waited = true;
}
void meet() {
  rest(State::at_block);
}
bool meet_any(bool own) {
  self().says = own;
  meet();
  bool any = false;
  for (int i = 0; i < current->threads; ++i) any |= fiber(turn.rank * current->threads + i).says;
  meet();  // another may be asked next
  return any;
}
void meet_cluster() {
  rest(State::at_cluster);
}
float4 of_cluster(const float4* at, int rank) {
  const float* const there = &at->x + (rank - turn.rank) * std::ptrdiff_t(current->floats);
  return {there[0], there[1], there[2], there[3]};
}
void multiply_tf32(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  multiply(sums, a, b0, b1, false);
}
void multiply_halves(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  multiply(sums, a, b0, b1, true);
}
void copy_async(float* to, const float* from, bool there) {
  begin_copy(to, from, 1, there);
}
void copy_async_4(float* to, const float* from, bool there) {
  begin_copy(to, from, 4, there);
}
void commit() {
  self().groups.emplace_back();
}
void wait_until(int open) {
  auto& groups = self().groups;
  for (; groups.size() > std::size_t(open) + 1; groups.pop_front()) {
    for (const Copy& copy : groups.front()) {
      for (int i = 0; i < copy.floats; ++i) copy.to[i] = copy.there ? copy.from[i] : 0;
    }
  }
}

}  // namespace millrace::gpu
