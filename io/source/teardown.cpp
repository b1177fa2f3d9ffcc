#include "io/source/teardown.h"

#include <thread>
#include <utility>

namespace millrace::io {

using namespace std::chrono_literals;

bool Teardown::destroy(std::unique_ptr<Source> source, std::chrono::milliseconds limit) {
  if (!source) return true;
  std::promise<void> promise;
  std::future<void> gone = promise.get_future();
  std::thread([promise = std::move(promise), source = std::move(source)]() mutable {
    source.reset();
    promise.set_value();
  }).detach();
  if (gone.wait_for(limit) == std::future_status::ready) return true;
  left_.push_back(std::move(gone));
  return false;
}

int Teardown::pending() {
  std::erase_if(left_, [](auto& one) { return one.wait_for(0s) == std::future_status::ready; });
  return int(left_.size());
}

}  // namespace millrace::io
