#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "engine/trainer/trainer.h"
#include "tools/app/feeds/frame_feed.h"
#include "tools/app/feeds/replay_buffer.h"

namespace millrace::app {

struct ReplayOptions {
  ReplayKind kind = ReplayKind::recent;
  int places = 0;
  double share = -1;  ///< replayed share of all samples, 0 to 1; negative: as many as fit
  std::uint64_t seed = 0;
};

/// Passes a stream's samples on, stores some, and replays them with their targets in idle time.
///
/// Live: fresh frames have priority. A sample is replayed only if no frame waits, the latest one
/// has been predicted, and the whole pipeline can finish the sample before the next frame may
/// arrive. Both times are estimated like TCP's retransmission timeout, mean plus 4 mean deviations
/// (RFC 6298). Nothing is replayed while a frame is overdue, so outages stop replay.
///
/// Live with late targets: a predicted frame occupies the stages until the next one arrives, so
/// idle time lies before a frame's forward: samples are replayed when a frame has arrived, until
/// half of the time to the one after it is over.
///
/// Not live (the stream waits for the pipeline): replay follows the share alone; a replayed sample
/// precedes a fresh one that already waits. At the stream's end, replayed samples complete the last
/// minibatch.
///
/// A sample is stored when its slot is about to be reused: every stage is done with it then, its
/// target and loss are known, and only stage 0's worker holds it, so that worker does all copying
/// into and out of the buffer.
class ReplayFeed final : public engine::Feed, public engine::Observer {
 public:
  /// `live`: frames arrive at their own rate. `trainer` and `stream` outlive this.
  ReplayFeed(engine::Trainer& trainer, FrameFeed& stream, bool live, const ReplayOptions& options)
      : trainer_(trainer),
        stream_(stream),
        live_(live),
        all_that_fits_(options.share < 0),
        ratio_(all_that_fits_ ? 0 : options.share / (1 - options.share)),
        choice_(trainer.schedule().samples_a_choice()),
        entries_(std::size_t(trainer.schedule().slots())),
        buffer_(options.kind, options.places, trainer.in_slot(0).bytes(), options.seed),
        // A stage lags by no more than the samples in flight.
        fresh_(4 * entries_.size() + 2 * std::size_t(trainer.schedule().group)) {}

  Status poll(std::chrono::microseconds patience) override {
    again_ = false;
    const bool may = buffer_.count() > 0 && owes();
    if (!live_) {
      const Status status = stream_.poll(patience);
      // Fills the minibatch that the stream's end leaves incomplete.
      const bool fills = status == Status::end && buffer_.count() > 0 && taken_ % choice_ != 0;
      again_ = fills || (may && status == Status::ready);
      return fills ? Status::ready : status;
    }
    if (may && trainer_.options().late_targets) {
      const Status status = stream_.poll(patience);
      if (status != Status::ready) return status;
      const auto now = engine::Clock::now();
      if (came_ == engine::Clock::time_point()) came_ = now;
      const auto half = period() / 2;
      again_ = pass_ns_.load(std::memory_order_relaxed) > 0 && half.count() > 0 &&
               now + step_ <= came_ + half && left() + half >= step_;
      return status;
    }
    if (!may || left().count() < 0) return stream_.poll(patience);
    const Status status = stream_.poll({});
    if (status != Status::wait || stream_.rests()) return status;
    if (!in_time()) return stream_.poll(std::min(patience, kLook));
    again_ = true;
    return Status::ready;
  }
  void take(engine::Sample& sample) override {
    keep(sample);
    Entry& entry = this->entry(sample);
    entry.told = false;
    if (again_) {
      replay(sample);
      owed_ -= 1;
    } else {
      stream_.take(sample);
      entry.place = -1;
      if (live_) {
        follow_stream(sample.info.captured);
        follow_stages();
        came_ = {};
      }
      if (buffer_.count() > 0 && sample.info.has_target && !trainer_.options().late_targets)
        owed_ += ratio_;
      // Unused time is lost.
      if (live_) owed_ = std::min(owed_, std::max(1.0, ratio_));
      ++taken_fresh_;
    }
    entry.frame = sample.info.frame;
    entry.taken = engine::Clock::now();
    fresh_[std::size_t(taken_++) % fresh_.size()].store(taken_fresh_, std::memory_order_relaxed);
  }
  Status target(engine::Sample& sample, std::chrono::microseconds patience) override {
    return entry(sample).place >= 0 ? Status::ready : stream_.target(sample, patience);
  }
  bool computes_targets() const override { return stream_.computes_targets(); }
  Status targets_known(std::chrono::microseconds patience) override {
    return stream_.targets_known(patience);
  }

  void shown(engine::Sample& sample) override {
    const engine::Clock::duration passed = sample.info.predicted - entry(sample).taken;
    const auto ns = double(std::chrono::nanoseconds(passed).count());
    if (pass_mean_ns_ == 0) {
      pass_mean_ns_ = ns;
      pass_deviation_ns_ = ns / 2;
    } else {
      pass_deviation_ns_ += (std::abs(ns - pass_mean_ns_) - pass_deviation_ns_) / 4;
      pass_mean_ns_ += (ns - pass_mean_ns_) / 8;
    }
    pass_ns_.store(std::int64_t(pass_mean_ns_ + 4 * pass_deviation_ns_), std::memory_order_relaxed);
    if (!sample.info.replayed) shown_fresh_.fetch_add(1, std::memory_order_relaxed);
  }
  void predicted(engine::Sample& sample, float loss) override {
    entry(sample).told = sample.info.has_target;
    entry(sample).loss = loss;
  }

  /// Number of fresh samples up to `sample`, a recent one. Called by a stage that has it.
  std::int64_t fresh(std::int64_t sample) const {
    return fresh_[std::size_t(sample) % fresh_.size()].load(std::memory_order_relaxed);
  }
  /// After the run.
  const ReplayBuffer& buffer() const { return buffer_; }

 private:
  static constexpr std::chrono::microseconds kLook{500};
  static constexpr double kNearlyAlways = 0.95;

  struct Entry {
    std::int64_t frame = -1;
    int place = -1;     ///< in the buffer; -1: a fresh sample
    bool told = false;  ///< the loss is known
    float loss = 0;
    engine::Clock::time_point taken;
  };

  bool owes() const { return (live_ && all_that_fits_) || owed_ >= 1 - 1e-9; }
  bool in_time() const {
    const std::chrono::nanoseconds pass(pass_ns_.load(std::memory_order_relaxed));
    if (pass.count() == 0) return false;
    // The last stage's update follows its prediction.
    const engine::Clock::duration alone = trainer_.schedule().stages > 1
                                              ? pass + step_
                                              : std::max<engine::Clock::duration>(pass, step_);
    if (std::chrono::duration<double>(alone).count() * trainer_.monitor().fps() >= 1)
      return left() >= step_;  // the stages overlap, and the sample joins in
    return left() >= alone && shown_fresh_.load(std::memory_order_relaxed) == taken_fresh_;
  }
  /// A lower bound on the time until the next frame; negative: overdue, or the rate is unknown.
  engine::Clock::duration left() const {
    const auto period = this->period();
    if (period.count() <= 0) return std::chrono::nanoseconds(-1);
    return captured_ + way_ + period - engine::Clock::now();
  }
  /// A lower bound on the time between frames; 0: the rate is unknown.
  std::chrono::nanoseconds period() const {
    const double fps = trainer_.monitor().fps();
    return std::chrono::nanoseconds(
        fps > 0 ? std::max<std::int64_t>(0, std::int64_t(1e9 / fps - 4 * early_ns_)) : 0);
  }
  void follow_stream(engine::Clock::time_point captured) {
    const bool waited = came_ != engine::Clock::time_point();  // for replayed samples
    const engine::Clock::duration way = (waited ? came_ : engine::Clock::now()) - captured;
    const double fps = trainer_.monitor().fps();
    if (taken_fresh_ > 0 && fps > 0) {
      const std::chrono::duration<double, std::nano> interval = captured - captured_;
      early_ns_ += (std::abs(interval.count() - 1e9 / fps) - early_ns_) / 8;
    }
    way_ = taken_fresh_ == 0 ? way : std::min(way, way_ + (way - way_) / 64);
    captured_ = captured;
  }
  void follow_stages() {
    const engine::Schedule& schedule = trainer_.schedule();
    double slowest = 0;
    for (int stage = 0; stage < schedule.stages; ++stage) {
      const int replicas = schedule.replicas_of(stage);
      for (int replica = 0; replica < replicas; ++replica) {
        const auto& busy =
            trainer_.monitor().meter(schedule.replica_id(stage, replica)).measured().busy;
        slowest = std::max(slowest, busy.quantile(kNearlyAlways) / replicas);
      }
    }
    step_ = std::chrono::nanoseconds(std::int64_t(slowest));
  }
  void keep(engine::Sample& sample) {
    const Entry& entry = this->entry(sample);
    if (!entry.told) return;
    if (entry.place >= 0) return buffer_.set_loss(entry.place, entry.frame, entry.loss);
    if (trainer_.options().late_targets)
      owed_ += ratio_;  // whether it had a target is known only now
    const int place = buffer_.keep(entry.frame, entry.loss);
    if (place >= 0) sample.write_to(buffer_.at(place));
  }
  void replay(engine::Sample& sample) {
    const int place = buffer_.choose();
    sample.read_from(buffer_.at(place));
    entry(sample).place = place;
    sample.info = {
        .frame = buffer_.frame(place), .captured = engine::Clock::now(), .replayed = true};
  }
  Entry& entry(const engine::Sample& sample) { return entries_[std::size_t(sample.slot)]; }

  engine::Trainer& trainer_;
  FrameFeed& stream_;
  const bool live_, all_that_fits_;
  const double ratio_;          ///< replayed samples per fresh one
  const std::int64_t choice_;   ///< samples of a minibatch, over all replicas
  std::vector<Entry> entries_;  ///< [slot]
  ReplayBuffer buffer_;
  // Stage 0's worker.
  bool again_ = false;  ///< the next sample is replayed
  double owed_ = 0;
  std::int64_t taken_ = 0, taken_fresh_ = 0;
  engine::Clock::time_point captured_{};  ///< of the latest frame
  engine::Clock::time_point came_{};      ///< when the waiting frame was first seen; 0: none
  engine::Clock::duration way_{};         ///< from capture to here, minimum
  double early_ns_ = 0;                   ///< mean deviation from the stream's period
  engine::Clock::duration step_{};        ///< of the slowest stage, 95th percentile
  // Last stage's worker.
  double pass_mean_ns_ = 0, pass_deviation_ns_ = 0;
  // Shared by both workers.
  std::atomic<std::int64_t> pass_ns_{0};  ///< from take() to prediction, upper estimate; 0: unknown
  std::atomic<std::int64_t> shown_fresh_{0};
  std::vector<std::atomic<std::int64_t>> fresh_;  ///< [sample % size]
};

}  // namespace millrace::app
