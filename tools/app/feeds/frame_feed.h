#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>

#include "engine/pipeline/feed.h"
#include "io/queue/frame_queue.h"
#include "io/queue/planar.h"
#include "io/queue/resizer.h"
#include "tools/app/config/task.h"

namespace millrace::app {

/// Turns frames into samples. Targets by task: autoencode: the frame itself; label: 1 for the
/// frame's class, 0 for the others; mask, stream: the frame's target, preceded by the input with
/// task.with_input. A frame without a class or target gives a sample without a target. Used by
/// stage 0's worker; pending() after it has stopped.
class FrameFeed : public engine::Feed {
 public:
  /// `queue` and `resizer` outlive this.
  FrameFeed(io::FrameQueue& queue, io::Resizer& resizer, TargetFrom target)
      : queue_(queue), resizer_(resizer), target_from_(target) {}

  /// Takes no frames while paused(). Call it before the run.
  void rest_while(std::function<bool()> paused) { paused_ = std::move(paused); }

  Status poll(std::chrono::microseconds patience) override {
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
  void take(engine::Sample& sample) override {
    write_input(resizer_.fit(*frame_), sample);  // for autoencode, also the target
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

  /// Whether the feed is paused. A pause doesn't stop it from draining.
  bool rests() const { return paused_ && paused_() && !queue_.drained(); }

  /// Samples produced so far. Any thread.
  std::int64_t taken() const { return taken_.load(std::memory_order_relaxed); }

  /// Frames popped from the queue that have not become samples.
  virtual std::int64_t pending() const { return frame_ ? 1 : 0; }
  /// Frames popped so far that never will become samples. Any thread.
  virtual std::int64_t unfit() const { return 0; }

 protected:
  /// The next frame, to be released; null: none within `patience`, or the stream has `ended`.
  io::Frame* pop(std::chrono::microseconds patience, bool& ended) {
    // read first: a frame may arrive between the two calls
    const bool drained = queue_.drained();
    io::Frame* const frame = queue_.pop(drained ? std::chrono::microseconds(0) : patience);
    ended = drained && !frame;
    return frame;
  }
  engine::SampleInfo info_of(const io::Frame& frame) {
    const std::int64_t index = taken();
    taken_.store(index + 1, std::memory_order_relaxed);
    return {.index = index, .frame = frame.id, .captured = frame.captured, .pts = frame.pts};
  }
  /// Copies a frame of the samples' size as bytes or floats, as the slot requires.
  static void write_input(const io::Frame& frame, engine::Sample& sample) {
    write(frame, sample.input_bytes(), sample.input());
  }
  /// Copies `frame` as frame `place` of the `context` in a sample.
  static void write_input(const io::Frame& frame, engine::Sample& sample, int place, int context) {
    if (context == 1) return write_input(frame, sample);
    const std::size_t channels = std::size_t(frame.channels), first = std::size_t(place) * channels;
    const std::span<std::uint8_t> bytes = sample.input_bytes();
    if (bytes.empty()) {
      const std::span<float> floats = sample.input();
      const std::size_t elements = floats.size() / std::size_t(context);
      return write(frame, {}, floats.subspan(elements * std::size_t(place), elements));
    }
    // The channels of all frames are adjacent for each pixel.
    const std::size_t step = channels * std::size_t(context);
    for (std::size_t pixel = 0; pixel * step < bytes.size(); ++pixel) {
      std::copy_n(frame.pixels.begin() + std::ptrdiff_t(pixel * channels), channels,
                  bytes.begin() + std::ptrdiff_t(pixel * step + first));
    }
  }
  static void write_target(const io::Frame& frame, engine::Sample& sample) {
    write(frame, sample.target_bytes(), sample.target());
  }

  io::FrameQueue& queue_;
  io::Resizer& resizer_;

 private:
  static void write(const io::Frame& frame, std::span<std::uint8_t> bytes,
                    std::span<float> floats) {
    if (!frame.values.empty())
      std::ranges::copy(frame.values, floats.begin());
    else if (bytes.empty())
      io::to_planar(frame, floats.data());
    else
      std::copy_n(frame.pixels.begin(), frame.bytes(), bytes.begin());
  }
  static void write_class(int label, engine::Sample& sample) {
    const std::span<float> target = sample.target();
    std::ranges::fill(target, 0.0f);
    if (std::size_t(label) < target.size()) target[std::size_t(label)] = 1.0f;
  }
  /// Writes the frame's own target, after the input if the network predicts both.
  static void write_told(const io::Frame& frame, engine::Sample& sample) {
    const std::span<float> target = sample.target();
    const std::size_t before = target.size() - frame.target.size();
    std::ranges::copy(sample.input().first(before), target.begin());
    std::ranges::copy(frame.target, target.begin() + std::ptrdiff_t(before));
  }

  const TargetFrom target_from_;
  std::atomic<std::int64_t> taken_{0};
  std::function<bool()> paused_;  ///< empty: never
  io::Frame* frame_ = nullptr;
};

}  // namespace millrace::app
