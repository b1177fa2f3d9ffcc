#include "tools/app/feeds/frame_feed.h"

#include <algorithm>
#include <thread>

#include "io/queue/planar.h"

namespace millrace::app {

using namespace std::chrono_literals;

namespace {

/// As bytes if the sample takes bytes, else as floats.
void write(const io::Frame& frame, std::span<std::uint8_t> bytes, std::span<float> floats) {
  if (!frame.values.empty()) {
    std::ranges::copy(frame.values, floats.begin());
  } else if (bytes.empty()) {
    io::to_planar(frame, floats.data());
  } else {
    std::copy_n(frame.pixels.begin(), frame.bytes(), bytes.begin());
  }
}

/// 1 for the class, 0 for the others.
void write_class(int label, engine::Sample& sample) {
  const std::span<float> target = sample.target();
  std::ranges::fill(target, 0.0f);
  if (std::size_t(label) < target.size()) target[std::size_t(label)] = 1.0f;
}

/// The frame's own target, after the input if the network predicts both.
void write_told(const io::Frame& frame, engine::Sample& sample) {
  const std::span<float> target = sample.target();
  const std::size_t before = target.size() - frame.target.size();
  std::ranges::copy(sample.input().first(before), target.begin());
  std::ranges::copy(frame.target, target.begin() + std::ptrdiff_t(before));
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
  // Asked first, since a frame may arrive between the two calls.
  const bool drained = queue_.drained();
  io::Frame* const frame = queue_.pop(drained ? 0us : patience);
  ended = drained && !frame;
  return frame;
}

void FrameFeed::take(engine::Sample& sample) {
  write_input(resizer_.fit(*frame_), sample);  // autoencode: the target, too
  sample.info = info_of(*frame_);
  bool& has_target = sample.info.has_target;
  if (target_from_ == TargetFrom::label) {
    write_class(frame_->label, sample);
    has_target = frame_->label >= 0;
  } else if (target_from_ == TargetFrom::teller) {
    has_target = !frame_->target.empty();
    if (has_target) write_told(*frame_, sample);
  }
  queue_.release(frame_);
  frame_ = nullptr;
}

engine::SampleInfo FrameFeed::info_of(const io::Frame& frame) {
  const std::int64_t index = taken();
  taken_.store(index + 1, std::memory_order_relaxed);
  return {.index = index, .frame = frame.id, .captured = frame.captured};
}

void FrameFeed::write_input(const io::Frame& frame, engine::Sample& sample) {
  write(frame, sample.input_bytes(), sample.input());
}

void FrameFeed::write_input(const io::Frame& frame, engine::Sample& sample, int place,
                            int context) {
  if (context == 1) return write_input(frame, sample);
  const std::size_t channels = std::size_t(frame.channels), first = std::size_t(place) * channels;
  const std::span<std::uint8_t> bytes = sample.input_bytes();
  if (bytes.empty()) {
    const std::span<float> floats = sample.input();
    const std::size_t elements = floats.size() / std::size_t(context);
    return write(frame, {}, floats.subspan(elements * std::size_t(place), elements));
  }
  // A pixel's channels of all frames lie together.
  const std::size_t step = channels * std::size_t(context);
  for (std::size_t pixel = 0; pixel * step < bytes.size(); ++pixel) {
    std::copy_n(frame.pixels.begin() + std::ptrdiff_t(pixel * channels), channels,
                bytes.begin() + std::ptrdiff_t(pixel * step + first));
  }
}

void FrameFeed::write_target(const io::Frame& frame, engine::Sample& sample) {
  write(frame, sample.target_bytes(), sample.target());
}

}  // namespace millrace::app
