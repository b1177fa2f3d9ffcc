#include "engine/trainer/checkpointer.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <exception>
#include <iterator>

namespace millrace::engine {

Checkpointer::Checkpointer(int stages, std::int64_t every,
                           std::function<stages::StateDict(int)> copy, Write write,
                           const LossGuard* guard)
    : stages_(stages),
      every_(every),
      progress_(stages, Progress{.every = every}),
      copy_(std::move(copy)),
      write_(std::move(write)),
      guard_(guard),
      writer_([this] { write_loop(); }) {}

Checkpointer::~Checkpointer() {
  finish();
}

void Checkpointer::after_sample(int stage, std::int64_t sample) {
  Part part{.stage = stage, .sample = sample};
  if (!reached(progress_[stage], sample, part.due)) return;
  part.state = copy_(stage);
  pass_on_ ? pass_on_(part) : add(std::move(part));
}

void Checkpointer::add(Part part) {
  const Due due = part.due;
  const std::lock_guard lock(mutex_);
  Snapshot& snapshot = gathering_[due];
  snapshot.parts[part.stage] = std::move(part.state);
  snapshot.samples = std::max(snapshot.samples, part.sample + 1);
  if (int(snapshot.parts.size()) < stages_) return;
  if (guard_) snapshot.guard = guard_->status();
  whole_ = std::move(snapshot);
  // Earlier incomplete snapshots of this kind never complete: set_every() came between stages.
  gathering_.erase(gathering_.lower_bound({due.first, 0}), std::next(gathering_.find(due)));
  changed_.notify_one();
}

bool Checkpointer::reached(Progress& progress, std::int64_t sample, Due& due) const {
  // Updates may cover several samples: the first that reaches a multiple counts for it.
  const std::int64_t every = every_.load(std::memory_order_relaxed);
  const std::int64_t multiple = every > 0 ? (sample + 1) / every * every : 0;
  const bool regular = multiple != progress.due && every == progress.every;
  progress.due = multiple;
  progress.every = every;  // a new interval counts from here
  due = {false, multiple};
  if (regular) return true;
  const std::int64_t asked = asked_.load(std::memory_order_relaxed);
  if (sample < asked || progress.answered == asked) return false;
  progress.answered = asked;
  due = {true, asked};
  return true;
}

void Checkpointer::finish() {
  {
    const std::lock_guard lock(mutex_);
    finished_ = true;
    changed_.notify_one();
  }
  if (writer_.joinable()) writer_.join();
}

std::string Checkpointer::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

bool Checkpointer::proved(const Snapshot& snapshot, std::unique_lock<std::mutex>& lock) {
  while (guard_ && !guard_->proved(snapshot.guard)) {
    if (finished_ || guard_->disproved(snapshot.guard)) return false;
    changed_.wait_for(lock, std::chrono::milliseconds(20));
  }
  return true;
}

void Checkpointer::write_loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return finished_ || !whole_.parts.empty(); });
    if (whole_.parts.empty()) return;
    const Snapshot snapshot = std::exchange(whole_, {});
    if (!proved(snapshot, lock)) continue;
    lock.unlock();
    std::string error;
    try {
      stages::StateDict all;
      for (const auto& [stage, part] : snapshot.parts)
        all.insert(all.end(), part.begin(), part.end());
      write_(all, snapshot.samples);
      written_.fetch_add(1, std::memory_order_relaxed);
    } catch (const std::exception& failure) {
      error = failure.what();
      failed_.fetch_add(1, std::memory_order_relaxed);
    }
    lock.lock();
    error_ = error;
  }
}

}  // namespace millrace::engine
