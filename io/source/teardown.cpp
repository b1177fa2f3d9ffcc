#include "io/source/teardown.h"

#include <condition_variable>  // it is gone
#include <mutex>               // the count
#include <thread>              // where it is destroyed
#include <utility>             // std::move

namespace millrace::io {

struct Teardown::State {
  mutable std::mutex mutex;
  std::condition_variable changed;
  int pending = 0;
};

Teardown::Teardown() : state_(std::make_shared<State>()) {}

bool Teardown::destroy(std::unique_ptr<Source> source, std::chrono::milliseconds limit) {
  if (!source) return true;
  auto done = std::make_shared<bool>(false);
  {
    const std::lock_guard lock(state_->mutex);
    ++state_->pending;
  }
  std::thread([state = state_, done, source = std::move(source)]() mutable {
    source.reset();
    const std::lock_guard lock(state->mutex);
    --state->pending;
    *done = true;
    state->changed.notify_all();
  }).detach();
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, limit, [&] { return *done; });
}

int Teardown::pending() const {
  const std::lock_guard lock(state_->mutex);
  return state_->pending;
}

}  // namespace millrace::io
