#include "engine/checkpointer.h"

#include <ATen/ATen.h>  // tensors in snapshots

#include <exception>  // failures to write
#include <utility>    // exchange

namespace millrace::engine {

Checkpointer::Checkpointer(int stages, std::int64_t every,
                           std::function<stages::StateDict(int)> copy,
                           std::function<void(const stages::StateDict&)> write)
    : stages_(stages),
      every_(every),
      answered_(stages, -1),
      numbers_(stages, 0),
      copy_(std::move(copy)),
      write_(std::move(write)),
      writer_([this] { write_loop(); }) {}

Checkpointer::~Checkpointer() {
  finish();
}

void Checkpointer::after_sample(int stage, std::int64_t sample) {
  // Updates may cover several samples: the first that reaches a multiple counts for it.
  const std::int64_t asked = asked_.load(std::memory_order_relaxed);
  std::int64_t number = every_ > 0 ? (sample + 1) / every_ : 0;
  if (number != numbers_[stage]) {
    numbers_[stage] = number;
  } else if (sample >= asked && answered_[stage] != asked) {
    answered_[stage] = asked;
    number = -1 - asked;  // apart from the regular ones
  } else {
    return;
  }
  stages::StateDict part = copy_(stage);
  const std::lock_guard lock(mutex_);
  Snapshot& snapshot = gathering_[number];
  snapshot.parts[stage] = std::move(part);
  if (int(snapshot.parts.size()) < stages_) return;
  whole_ = std::move(snapshot);
  gathering_.erase(number);
  changed_.notify_one();
}

std::string Checkpointer::finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    changed_.notify_one();
  }
  if (writer_.joinable()) writer_.join();
  return error_;
}

void Checkpointer::write_loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return finished_ || !whole_.parts.empty(); });
    if (whole_.parts.empty()) return;
    const Snapshot snapshot = std::exchange(whole_, {});
    lock.unlock();
    std::string error;
    try {
      stages::StateDict all;
      for (const auto& [stage, part] : snapshot.parts)
        all.insert(all.end(), part.begin(), part.end());
      write_(all);
      written_.fetch_add(1, std::memory_order_relaxed);
    } catch (const std::exception& failure) {
      error = failure.what();
    }
    lock.lock();
    if (error_.empty()) error_ = error;
  }
}

}  // namespace millrace::engine
