// A few threads that work on one operation together.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace millrace::kernels {

/// One thread's share of work that `count` threads do together. Shares are fixed by these two
/// numbers, so that every element is made by one thread in the order in which one thread alone
/// would make it: results do not depend on the number of threads.
struct Share {
  int index = 0, count = 1;

  /// Its part [begin, end) of `total` things, in whole units but for the last.
  std::pair<std::size_t, std::size_t> of(std::size_t total, std::size_t unit = 1) const {
    const std::size_t units = (total + unit - 1) / unit, all = std::size_t(count);
    const auto edge = [&](std::size_t i) { return std::min(total, units * i / all * unit); };
    return {edge(std::size_t(index)), edge(std::size_t(index) + 1)};
  }
};

/// A caller and `threads` - 1 helpers, which wait for it: at first spinning, so that a barrier
/// costs a fraction of a microsecond, then asleep. One thread at a time makes, runs and ends it.
/// run() and meet() allocate nothing and take no lock.
class Team {
 public:
  /// \param started called on each helper, by its index from 1 on, before anything else: to pin it.
  explicit Team(int threads, const std::function<void(int index)>& started = {});
  ~Team();

  int threads() const { return int(helpers_.size()) + 1; }

  /// Calls work(share) on every thread, the caller's is the first share. Returns when all are done.
  /// `work` throws nothing.
  template <class Work>
  void run(const Work& work) {
    call_ = [](const void* what, Share share) { (*static_cast<const Work*>(what))(share); };
    what_ = &work;
    start();
    work(Share{0, threads()});
    meet();
  }
  /// Within work: waits for all of the team. What each did before, all see after.
  void meet();

 private:
  void start();

  void (*call_)(const void* what, Share share) = nullptr;
  const void* what_ = nullptr;
  // Apart, since everybody looks at one while others write the other.
  alignas(64) std::atomic<std::uint32_t> started_{0};
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> meetings_{0};
  bool over_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace millrace::kernels
