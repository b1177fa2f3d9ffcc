// A stream whose samples come again while it leaves time.
#pragma once

#include <atomic>
#include <vector>

#include "engine/trainer/trainer.h"
#include "tools/app/feeds/frame_feed.h"
#include "tools/app/feeds/replay_buffer.h"

namespace millrace::app {

struct ReplayOptions {
  ReplayKind kind = ReplayKind::none;
  int places = 0;
  double share = -1;  ///< of all samples those that are replayed, 0 to 1; below 0: as many as fit
  std::uint64_t seed = 0;
};

/// Passes a stream's samples on, keeps some, and gives them again with their targets.
///
/// Live: fresh frames go first. A replayed sample is taken only when no frame waits, the latest one
/// has been predicted, and the whole pipeline can be done with it before the next frame may come.
/// How long it takes and how early a frame may come is estimated from those before, as TCP does for
/// its retransmission timer: mean and 4 mean deviations (RFC 6298). Nothing is replayed while a
/// frame is overdue, so that an outage stops it, too.
///
/// Not live (the stream waits for the pipeline): the share says which samples are replayed,
/// whatever the time, each before a fresh one that is there already.
///
/// A sample is kept when its slot is about to be written again: by then every stage is done with
/// it, its target and loss are known, and stage 0's worker alone holds it. So all copies are that
/// worker's: one into the buffer for a sample kept, one out of it for a sample replayed.
class ReplayFeed final : public engine::Feed, public engine::Observer {
 public:
  /// `live`: frames come at their own rate. Trainer and stream outlive this.
  ReplayFeed(engine::Trainer& trainer, FrameFeed& stream, bool live, const ReplayOptions& options);

  Status poll(std::chrono::microseconds patience) override;
  void take(engine::Sample& sample) override;
  Status target(engine::Sample& sample, std::chrono::microseconds patience) override;
  Status targets_known(std::chrono::microseconds patience) override { return stream_.targets_known(patience); }
  std::int64_t missed() const override { return stream_.missed(); }

  void shown(engine::Sample& sample) override;
  void predicted(engine::Sample& sample, float loss) override;

  /// Fresh ones among the samples up to `sample`, one of the latest. Any stage that has it.
  std::int64_t fresh(std::int64_t sample) const {
    return fresh_[std::size_t(sample) % fresh_.size()].load(std::memory_order_relaxed);
  }
  /// When the run is over.
  const ReplayBuffer& buffer() const { return buffer_; }

 private:
  /// What is known of the sample in a slot.
  struct Entry {
    std::int64_t frame = -1;
    int place = -1;     ///< it was replayed from; -1: it is fresh
    bool told = false;  ///< its loss is known
    float loss = 0;
    engine::Clock::time_point taken;
  };

  bool owes() const;  ///< whether the share asks for another one now
  bool in_time() const;
  /// The least time until the next frame comes; below 0: it is overdue, or there is no rate.
  engine::Clock::duration left() const;
  void follow_stream(engine::Clock::time_point captured);
  void follow_stages();
  void keep(engine::Sample& sample);
  void replay(engine::Sample& sample);
  Entry& entry(const engine::Sample& sample) { return entries_[std::size_t(sample.slot)]; }

  engine::Trainer& trainer_;
  FrameFeed& stream_;
  const bool live_, all_that_fits_;
  const double ratio_;                       ///< replayed samples for each fresh one
  std::vector<Entry> entries_;               ///< by slot
  ReplayBuffer buffer_;
  // Stage 0's.
  bool again_ = false;  ///< the next sample is replayed
  double owed_ = 0;
  std::int64_t taken_ = 0, taken_fresh_ = 0;
  engine::Clock::time_point captured_{};  ///< the latest frame
  engine::Clock::duration way_{};         ///< from capture to here, at least
  double early_ns_ = 0;                   ///< mean deviation from the stream's period
  engine::Clock::duration step_{};        ///< of the slowest stage, nearly always
  // The last stage's.
  double pass_mean_ns_ = 0, pass_deviation_ns_ = 0;
  // Of both.
  std::atomic<std::int64_t> pass_ns_{0};  ///< from take to prediction, nearly always; 0: unknown
  std::atomic<std::int64_t> shown_fresh_{0};
  std::vector<std::atomic<std::int64_t>> fresh_;  ///< by sample, the latest
};

}  // namespace millrace::app
