// Replays samples of a stream in the time that it leaves.
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
  double share = -1;  ///< replayed share of all samples, 0 to 1; below 0: as many as fit
  std::uint64_t seed = 0;
};

/// Passes a stream's samples on, keeps some, and replays them with their targets.
///
/// Live: fresh frames have priority. A sample is replayed only if no frame waits, the latest one
/// has been predicted, and the whole pipeline can finish the sample before the next frame may
/// arrive. Both times are estimated as TCP estimates its retransmission timeout: mean plus 4 mean
/// deviations (RFC 6298). Nothing is replayed while a frame is overdue, so an outage stops replay.
///
/// Not live (the stream waits for the pipeline): replay follows the share alone, each replayed
/// sample before a fresh one that already waits.
///
/// A sample is kept when its slot is about to be written again: then every stage is done with it,
/// its target and loss are known, and only stage 0's worker holds it. So that worker makes all
/// copies, into the buffer and out of it.
class ReplayFeed final : public engine::Feed, public engine::Observer {
 public:
  /// `live`: frames come at their own rate. Trainer and stream outlive this.
  ReplayFeed(engine::Trainer& trainer, FrameFeed& stream, bool live, const ReplayOptions& options);

  Status poll(std::chrono::microseconds patience) override;
  void take(engine::Sample& sample) override;
  Status target(engine::Sample& sample, std::chrono::microseconds patience) override;
  Status targets_known(std::chrono::microseconds patience) override {
    return stream_.targets_known(patience);
  }
  std::int64_t missed() const override { return stream_.missed(); }

  void shown(engine::Sample& sample) override;
  void predicted(engine::Sample& sample, float loss) override;

  /// Number of fresh samples up to `sample`, a recent one. Called by a stage that has it.
  std::int64_t fresh(std::int64_t sample) const {
    return fresh_[std::size_t(sample) % fresh_.size()].load(std::memory_order_relaxed);
  }
  /// After the run.
  const ReplayBuffer& buffer() const { return buffer_; }

 private:
  /// The sample in a slot.
  struct Entry {
    std::int64_t frame = -1;
    int place = -1;     ///< in the buffer; -1: it is fresh
    bool told = false;  ///< the loss is known
    float loss = 0;
    engine::Clock::time_point taken;
  };

  bool owes() const;  ///< whether the share asks for a replay now
  bool in_time() const;
  /// The least time until the next frame arrives; below 0: it is overdue, or the rate is unknown.
  engine::Clock::duration left() const;
  void follow_stream(engine::Clock::time_point captured);
  void follow_stages();
  void keep(engine::Sample& sample);
  void replay(engine::Sample& sample);
  Entry& entry(const engine::Sample& sample) { return entries_[std::size_t(sample.slot)]; }

  engine::Trainer& trainer_;
  FrameFeed& stream_;
  const bool live_, all_that_fits_;
  const double ratio_;          ///< replayed samples per fresh one
  std::vector<Entry> entries_;  ///< by slot
  ReplayBuffer buffer_;
  // Stage 0's worker.
  bool again_ = false;  ///< the next sample is replayed
  double owed_ = 0;
  std::int64_t taken_ = 0, taken_fresh_ = 0;
  engine::Clock::time_point captured_{};  ///< the latest frame
  engine::Clock::duration way_{};         ///< from capture to here, at least
  double early_ns_ = 0;                   ///< mean deviation from the stream's period
  engine::Clock::duration step_{};        ///< of the slowest stage, nearly always
  // The last stage's worker.
  double pass_mean_ns_ = 0, pass_deviation_ns_ = 0;
  // Both.
  std::atomic<std::int64_t> pass_ns_{0};  ///< from take() to prediction, upper estimate; 0: unknown
  std::atomic<std::int64_t> shown_fresh_{0};
  std::vector<std::atomic<std::int64_t>> fresh_;  ///< by sample, the latest
};

}  // namespace millrace::app
