// Samples whose target is a later frame.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "tools/app/config/config.h"
#include "tools/app/feeds/frame_feed.h"

namespace millrace::app {

/// The target of a frame is the one `horizon` frames later in the same segment of the stream: none
/// if that was dropped or could not be decoded, or an outage or a loop's seam lies between.
///
/// Late: a frame is a sample as soon as it is there, so that its prediction is of the future; its
/// target is written when it comes, and a frame without one is a sample without a target. The
/// stages that wait for targets look for them themselves, so that the pipeline may be full
/// meanwhile. Not late: a frame is a sample once its target is there, and a frame without one is
/// none; for streams that are read faster than they were filmed.
///
/// The lock orders stage 0's worker and those that wait for targets: they hold it to look for one
/// frame, and of those that wait for targets, who does not get it at once is told by who looks.
class NextFrameFeed final : public FrameFeed {
 public:
  /// `slots`: samples in flight.
  NextFrameFeed(io::FrameQueue& queue, io::Resizer& resizer, int horizon, bool late, int slots);

  Status poll(std::chrono::microseconds patience) override;
  void take(engine::Sample& sample) override;
  Status target(engine::Sample& sample, std::chrono::microseconds patience) override;
  Status targets_known(std::chrono::microseconds patience) override;
  std::int64_t missed() const override { return missed_.load(std::memory_order_relaxed); }
  std::int64_t pending() const override { return unpaired_ + waiting(); }

 private:
  /// What became of a sample's target.
  enum class Target : std::uint8_t { open, written, missing };
  struct Awaited {
    engine::Sample* sample = nullptr;
    std::int64_t frame = -1, segment = 0;
    std::atomic<Target> target{Target::missing};
  };

  // Under the lock.
  std::int64_t waiting() const { return arrived_ - passed_; }  ///< frames in the window
  io::Frame& at(std::int64_t n) { return window_[std::size_t(n) % window_.size()]; }
  /// Takes one frame into the window, if one comes, and lets samples know.
  bool look(std::chrono::microseconds patience);
  void tell(Awaited& awaited, const io::Frame& frame);
  void wake();  ///< those that wait for a target
  void miss(Awaited& awaited);
  bool any_open() const;
  /// The target of the window's first frame, or null: it has not come; `never`: nor will it.
  const io::Frame* pair(bool& never);

  const std::int64_t horizon_;
  const bool late_;
  std::mutex mutex_;
  std::vector<io::Frame> window_;  ///< ring: frames looked at that are no samples yet
  std::int64_t arrived_ = 0, passed_ = 0;
  bool ended_ = false;            ///< no frame comes any more
  std::vector<Awaited> awaited_;  ///< by slot
  std::mutex told_mutex_;         ///< of told_ alone
  std::condition_variable told_;  ///< a sample's target may be known
  std::int64_t unpaired_ = 0;     ///< not late: frames that never got a target
  std::atomic<std::int64_t> missed_{0};
};

/// The feed of a task whose targets are frames of the same source, or come with them.
/// `slots`: samples in flight.
std::unique_ptr<FrameFeed> frame_feed(const Config& config, io::FrameQueue& queue,
                                      io::Resizer& resizer, bool late, int slots);

}  // namespace millrace::app
