#include "tools/app/feeds/frame_feed.h"

#include <algorithm>  // copy
#include <thread>     // rest

#include "io/queue/planar.h"

namespace millrace::app {

using namespace std::chrono_literals;

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
  if (frame_) return Status::ready;
  if (rests()) {
    std::this_thread::sleep_for(patience);
    return Status::wait;
  }
  bool ended = false;
  frame_ = pop(patience, ended);
  if (frame_) return Status::ready;
  return ended ? Status::end : Status::wait;
}

io::Frame* FrameFeed::pop(std::chrono::microseconds patience, bool& ended) {
  // Asked first: frames that arrive between the two calls must not be taken for the end.
  const bool drained = queue_.drained();
  io::Frame* const frame = queue_.pop(drained ? 0us : patience);
  ended = drained && !frame;
  return frame;
}

void FrameFeed::take(int slot, engine::SampleInfo& info) {
  write_input(resizer_.fit(*frame_), slot);  // autoencode: the target, too
  info = {.frame = frame_->id, .captured = frame_->captured};
  if (task_ == Task::label) {
    write_class(frame_->label, slot);
    info.has_target = frame_->label >= 0;
  } else if (task_ == Task::mask || task_ == Task::stream) {
    info.has_target = !frame_->target.empty();
    if (info.has_target) write_told(*frame_, slot);
  }
  queue_.release(frame_);
  frame_ = nullptr;
  count_sample();
}

void FrameFeed::write_input(const io::Frame& frame, int slot) {
  write(frame, trainer_.input_bytes(slot), trainer_.input(slot));
}

void FrameFeed::write_target(const io::Frame& frame, int slot) {
  write(frame, trainer_.target_bytes(slot), trainer_.target(slot));
}

void FrameFeed::write_told(const io::Frame& frame, int slot) {
  float* const target = trainer_.target(slot);
  const std::size_t before = trainer_.target_elements() - frame.target.size();
  if (before > 0) std::copy_n(trainer_.input(slot), before, target);
  std::copy(frame.target.begin(), frame.target.end(), target + before);
}

void FrameFeed::write_class(int label, int slot) {
  float* const target = trainer_.target(slot);
  std::fill_n(target, trainer_.target_elements(), 0.0f);
  if (std::size_t(label) < trainer_.target_elements()) target[label] = 1.0f;
}

}  // namespace millrace::app
