#include "tools/run/frame_feed.h"

#include <algorithm>  // copy
#include <thread>     // rest

#include "io/queue/planar.h"

namespace millrace::tools {
namespace {

/// To whichever is not null: as it is, or as floats.
void write(const io::Frame& frame, std::uint8_t* bytes, float* floats) {
  if (bytes) {
    std::copy_n(frame.pixels.begin(), frame.bytes(), bytes);
  } else {
    io::to_planar(frame, floats);
  }
}

}  // namespace

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
  if (task_ != Task::next_frame || follows(*frame_)) return Status::ready;
  unpaired_ += previous_.pixels.empty() ? 0 : 1;
  keep(resizer_.fit(*frame_));
  queue_.release(frame_);
  frame_ = nullptr;
  return Status::wait;
}

void FrameFeed::take(int slot, engine::SampleInfo& info) {
  const io::Frame& fitted = resizer_.fit(*frame_);
  const engine::SampleInfo here{.frame = frame_->id,
                                .captured = frame_->captured,
                                .has_target = task_ != Task::label || frame_->label >= 0};
  if (task_ == Task::next_frame) {
    write_input(previous_, slot);
    write_target(fitted, slot);
    info = previous_info_;
    keep(fitted);
  } else {
    write_input(fitted, slot);  // autoencode: the target, too
    if (task_ == Task::label) write_class(frame_->label, slot);
    info = here;
  }
  queue_.release(frame_);
  frame_ = nullptr;
  taken_.store(taken() + 1, std::memory_order_relaxed);
}

bool FrameFeed::follows(const io::Frame& frame) const {
  return !previous_.pixels.empty() && frame.id == previous_info_.frame + 1 &&
         frame.segment == previous_segment_;
}

void FrameFeed::keep(const io::Frame& fitted) {
  previous_ = fitted;
  previous_info_ = {.frame = frame_->id, .captured = frame_->captured};
  previous_segment_ = frame_->segment;
}

void FrameFeed::write_input(const io::Frame& frame, int slot) {
  write(frame, trainer_.input_bytes(slot), trainer_.input(slot));
}

void FrameFeed::write_target(const io::Frame& frame, int slot) {
  write(frame, trainer_.target_bytes(slot), trainer_.target(slot));
}

void FrameFeed::write_class(int label, int slot) {
  float* const target = trainer_.target(slot);
  std::fill_n(target, trainer_.target_elements(), 0.0f);
  if (std::size_t(label) < trainer_.target_elements()) target[label] = 1.0f;
}

}  // namespace millrace::tools
