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

/// One thread's share of work that `count` threads do together. Depends only on these two numbers;
/// each element is computed by one thread in single-thread order: results don't depend on `count`.
struct Share {
  int index = 0, count = 1;

  /// The part [begin, end) of `total` items, in multiples of `unit` except at the end.
  std::pair<std::size_t, std::size_t> of(std::size_t total, std::size_t unit = 1) const {
    const std::size_t units = (total + unit - 1) / unit, all = std::size_t(count);
    const auto edge = [&](std::size_t i) { return std::min(total, units * i / all * unit); };
    return {edge(std::size_t(index)), edge(std::size_t(index) + 1)};
  }
};

/// A caller and `threads` - 1 helpers. Waiting helpers spin at first, so that a barrier costs a
/// fraction of a microsecond, then sleep. One thread at a time creates, runs and destroys it. run()
/// and meet() allocate nothing and take no lock.
class Team {
 public:
  /// \param started called first on each helper with its index from 1 on, to pin it.
  explicit Team(int threads, const std::function<void(int index)>& started = {});
  ~Team();

  int threads() const { return int(helpers_.size()) + 1; }

  /// Calls work(share) on every thread, share 0 on the caller's, and waits for all. Must not throw.
  template <class Work>
  void run(const Work& work) {
    call_ = [](const void* what, Share share) { (*static_cast<const Work*>(what))(share); };
    what_ = &work;
    start();
    work(Share{0, threads()});
    meet();
  }
  /// Within work: a barrier. Afterwards all threads see each other's writes.
  void meet();

 private:
  void start();

  void (*call_)(const void* what, Share share) = nullptr;
  const void* what_ = nullptr;
  // On separate cache lines: all threads poll one while others write another.
  alignas(64) std::atomic<std::uint32_t> started_{0};
  alignas(64) std::atomic<std::uint32_t> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> meetings_{0};
  bool over_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace millrace::kernels
