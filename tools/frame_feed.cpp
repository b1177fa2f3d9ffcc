#include "tools/frame_feed.h"

#include <algorithm>  // copy
#include <thread>     // rest

#include "io/planar.h"

namespace millrace::tools {

Task task_of(const std::string& kind) {
  if (kind == "label") return Task::label;
  return kind == "next-frame" ? Task::next_frame : Task::autoencode;
}

engine::Feed::Status FrameFeed::poll(std::chrono::microseconds patience) {
  using namespace std::chrono_literals;
  if (frame_) return Status::ready;
  if (paused_ && paused_() && !queue_.drained()) {
    std::this_thread::sleep_for(patience);
    return Status::wait;
  }
  // Asked first: frames that arrive between the two calls must not be taken for the end.
  const bool drained = queue_.drained();
  frame_ = queue_.pop(drained ? 0us : patience);
  if (!frame_) return drained ? Status::end : Status::wait;
  if (task_ != Task::next_frame || !previous_.empty()) return Status::ready;
  const io::Frame& first = fitter_.fit(*frame_);
  previous_.resize(first.bytes());
  io::to_planar(first, previous_.data());
  previous_info_ = {.frame = frame_->id, .captured = frame_->captured};
  queue_.release(frame_);
  frame_ = nullptr;
  return Status::wait;
}

void FrameFeed::take(int slot, engine::SampleInfo& info) {
  const io::Frame& fitted = fitter_.fit(*frame_);
  const engine::SampleInfo here{.frame = frame_->id, .captured = frame_->captured};
  if (task_ == Task::label) {
    io::to_planar(fitted, trainer_.input(slot));
    float* target = trainer_.target(slot);
    std::fill_n(target, trainer_.target_elements(), 0.0f);
    const auto label = std::size_t(frame_->label);
    if (label < trainer_.target_elements()) target[label] = 1.0f;
  } else {
    io::to_planar(fitted, trainer_.target(slot));
  }
  if (task_ == Task::next_frame) {
    std::copy(previous_.begin(), previous_.end(), trainer_.input(slot));
    std::copy_n(trainer_.target(slot), previous_.size(), previous_.begin());
    info = previous_info_;
    previous_info_ = here;
  } else {
    info = here;
  }
  queue_.release(frame_);
  frame_ = nullptr;
}

}  // namespace millrace::tools
