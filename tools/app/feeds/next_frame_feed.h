// Samples whose target is a later frame.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "tools/app/config/config.h"
#include "tools/app/feeds/frame_feed.h"

namespace millrace::app {

/// How far ahead is predicted, and of what.
struct Ahead {
  int horizon = 1;  ///< frames from a sample's latest frame to its target
  int context = 1;  ///< frames in a sample
};

/// A frame's target is the frame `Ahead::horizon` later in the same segment of the stream. There is none
/// if that frame was dropped or not decoded, or if an outage or a loop's seam lies between.
///
/// A sample begins with the frames that arrived before its own in the segment. If there are too few,
/// the earliest is repeated: at the start of a stream nothing moves.
///
/// Late targets: a frame becomes a sample at once, so that the network predicts the future. Its
/// target is written when it arrives; if it never does, the sample has no target. Stages that wait
/// for targets take frames from the queue themselves, so that the pipeline can be full meanwhile.
/// Otherwise a frame becomes a sample once its target has arrived; frames without one are left out.
/// This serves streams that are read faster than they were filmed.
///
/// mutex_ is held to take one frame, by stage 0's worker or by one that waits for a target. Other
/// waiting workers are woken by the one that holds it.
class NextFrameFeed final : public FrameFeed {
 public:
  /// `slots`: samples in flight.
  NextFrameFeed(io::FrameQueue& queue, io::Resizer& resizer, Ahead ahead, bool late, int slots);

  Status poll(std::chrono::microseconds patience) override;
  void take(engine::Sample& sample) override;
  Status target(engine::Sample& sample, std::chrono::microseconds patience) override;
  Status targets_known(std::chrono::microseconds patience) override;
  std::int64_t missed() const override { return missed_.load(std::memory_order_relaxed); }
  std::int64_t pending() const override { return unpaired_ + waiting(); }

 private:
  enum class Target : std::uint8_t { open, written, missing };
  struct Awaited {
    engine::Sample* sample = nullptr;
    std::int64_t frame = -1, segment = 0;
    std::atomic<Target> target{Target::missing};
  };

  // Under the lock.
  std::int64_t waiting() const { return arrived_ - passed_; }  ///< frames in the window
  io::Frame& at(std::int64_t n) { return window_[std::size_t(n) % window_.size()]; }
  void write_context(engine::Sample& sample);
  /// Takes one frame, if one comes, into the window and writes it to the samples that await it.
  bool look(std::chrono::microseconds patience);
  void tell(Awaited& awaited, const io::Frame& frame);
  void wake();  ///< workers that wait for a target
  void miss(Awaited& awaited);
  bool any_open() const;
  /// The target of the window's first frame; null: not there yet, or `never` to come.
  const io::Frame* pair(bool& never);

  const std::int64_t horizon_;
  const int context_;
  const bool late_;
  std::mutex mutex_;
  std::vector<io::Frame> window_;  ///< ring of the latest samples' frames, and of those to come
  std::int64_t arrived_ = 0, passed_ = 0;
  bool ended_ = false;            ///< the stream has ended
  std::vector<Awaited> awaited_;  ///< by slot
  std::mutex told_mutex_;         ///< for told_ alone
  std::condition_variable told_;  ///< a sample's target may be known
  std::int64_t unpaired_ = 0;     ///< without late targets: frames without a target
  std::atomic<std::int64_t> missed_{0};
};

}  // namespace millrace::app
