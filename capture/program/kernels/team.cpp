#include "capture/program/kernels/team.h"

#include <hwy/cache_control.h>

namespace millrace::kernels {
namespace {

constexpr int kSpins = 2000;  ///< some 30 us, longer than any barrier between running threads

void await(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  for (int spin = 0; spin < kSpins; ++spin) {
    if (value.load(std::memory_order_acquire) != old) return;
    hwy::Pause();
  }
  value.wait(old);
}

/// A waiter checks the value again after announcing its sleep, and notify_all() looks for sleepers
/// after the change: sequentially consistent, or one could miss the other.
void advance(std::atomic<std::uint32_t>& value) {
  value.fetch_add(1);
  value.notify_all();
}

}  // namespace

Team::Team(int threads, const std::function<void(int index)>& started) {
  for (int index = 1; index < threads; ++index) {
    helpers_.emplace_back([this, index, started, threads] {
      if (started) started(index);
      std::uint32_t seen = 0;
      while (true) {
        await(started_, seen++);
        if (over_) return;
        call_(what_, Share{index, threads});
        meet();
      }
    });
  }
}

Team::~Team() {
  over_ = true;
  start();
  for (std::thread& helper : helpers_) helper.join();
}

void Team::start() {
  advance(started_);
}

void Team::meet() {
  const std::uint32_t before =
      meetings_.load(std::memory_order_relaxed);  // stays until all have arrived
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 < std::uint32_t(threads()))
    return await(meetings_, before);
  arrived_.store(0, std::memory_order_relaxed);
  advance(meetings_);
}

}  // namespace millrace::kernels
