#include "tools/app/feeds/replay_feed.h"

#include <algorithm>
#include <cmath>

namespace millrace::app {

using engine::Clock;
using Status = engine::Feed::Status;
using namespace std::chrono_literals;

namespace {

constexpr std::chrono::microseconds kLook{500};  // between checks for time
constexpr double kNearlyAlways = 0.95;

std::size_t bytes_of(engine::Sample& sample) {
  const auto [input, target] = sample.memory();
  return input.size() + target.size();
}

}  // namespace

ReplayFeed::ReplayFeed(engine::Trainer& trainer, FrameFeed& stream, bool live,
                       const ReplayOptions& options)
    : trainer_(trainer),
      stream_(stream),
      live_(live),
      all_that_fits_(options.share < 0),
      ratio_(all_that_fits_ ? 0 : options.share / (1 - options.share)),
      entries_(std::size_t(trainer.schedule().slots())),
      buffer_(options.kind, options.places, bytes_of(trainer.in_slot(0)), options.seed),
      // A stage is never further behind than the samples in flight.
      fresh_(4 * entries_.size() + 2 * std::size_t(trainer.schedule().group)) {}

Status ReplayFeed::poll(std::chrono::microseconds patience) {
  again_ = false;
  const bool may = buffer_.count() > 0 && owes();
  if (!live_) {
    const Status status = stream_.poll(patience);
    again_ = may && status == Status::ready;
    return status;
  }
  if (!may || left() < 0ns) return stream_.poll(patience);
  const Status status = stream_.poll(0us);
  if (status != Status::wait || stream_.rests()) return status;
  if (!in_time()) return stream_.poll(std::min(patience, kLook));
  again_ = true;
  return Status::ready;
}

bool ReplayFeed::owes() const {
  return (live_ && all_that_fits_) || owed_ >= 1 - 1e-9;
}

Clock::duration ReplayFeed::left() const {
  const double fps = trainer_.monitor().fps();
  if (fps <= 0) return -1ns;
  const std::chrono::nanoseconds period(std::int64_t(1e9 / fps - 4 * early_ns_));
  return captured_ + way_ + period - Clock::now();
}

bool ReplayFeed::in_time() const {
  const std::chrono::nanoseconds pass(pass_ns_.load(std::memory_order_relaxed));
  if (pass == 0ns) return false;
  // After the last stage's prediction comes its update.
  const Clock::duration alone =
      trainer_.schedule().stages > 1 ? pass + step_ : std::max<Clock::duration>(pass, step_);
  if (std::chrono::duration<double>(alone).count() * trainer_.monitor().fps() >= 1)
    return left() >= step_;  // frames overlap in the stages, and the sample joins them
  return left() >= alone && shown_fresh_.load(std::memory_order_relaxed) == taken_fresh_;
}

void ReplayFeed::take(engine::Sample& sample) {
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
    }
    if (buffer_.count() > 0) owed_ += ratio_;
    // Time that has passed unused is lost.
    if (live_) owed_ = std::min(owed_, std::max(1.0, ratio_));
    ++taken_fresh_;
  }
  entry.frame = sample.info.frame;
  entry.taken = Clock::now();
  fresh_[std::size_t(taken_++) % fresh_.size()].store(taken_fresh_, std::memory_order_relaxed);
}

void ReplayFeed::follow_stream(Clock::time_point captured) {
  const Clock::duration way = Clock::now() - captured;
  const double fps = trainer_.monitor().fps();
  if (taken_fresh_ > 0 && fps > 0) {
    const std::chrono::duration<double, std::nano> interval = captured - captured_;
    early_ns_ += (std::abs(interval.count() - 1e9 / fps) - early_ns_) / 8;
  }
  way_ = taken_fresh_ == 0 ? way : std::min(way, way_ + (way - way_) / 64);
  captured_ = captured;
}

void ReplayFeed::follow_stages() {
  const engine::Schedule& schedule = trainer_.schedule();
  double slowest = 0;
  for (int stage = 0; stage < schedule.stages; ++stage) {
    const int replicas = schedule.replicas_of(stage);
    for (int replica = 0; replica < replicas; ++replica) {
      const auto& busy = trainer_.monitor().meter(schedule.replica_id(stage, replica)).busy();
      slowest = std::max(slowest, busy.quantile(kNearlyAlways) / replicas);
    }
  }
  step_ = std::chrono::nanoseconds(std::int64_t(slowest));
}

void ReplayFeed::keep(engine::Sample& sample) {
  const Entry& entry = this->entry(sample);
  if (!entry.told) return;
  if (entry.place >= 0) return buffer_.set_loss(entry.place, entry.frame, entry.loss);
  const int place = buffer_.keep(entry.frame, entry.loss);
  if (place < 0) return;
  std::byte* to = buffer_.at(place);
  for (const std::span<std::byte> part : sample.memory()) to = std::ranges::copy(part, to).out;
}

void ReplayFeed::replay(engine::Sample& sample) {
  const int place = buffer_.choose();
  const std::byte* from = buffer_.at(place);
  for (const std::span<std::byte> part : sample.memory()) {
    std::copy_n(from, part.size(), part.begin());
    from += part.size();
  }
  entry(sample).place = place;
  sample.info = {.frame = buffer_.frame(place), .captured = Clock::now(), .replayed = true};
}

Status ReplayFeed::target(engine::Sample& sample, std::chrono::microseconds patience) {
  return entry(sample).place >= 0 ? Status::ready : stream_.target(sample, patience);
}

void ReplayFeed::shown(engine::Sample& sample) {
  const Clock::duration passed = sample.info.predicted - entry(sample).taken;
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

void ReplayFeed::predicted(engine::Sample& sample, float loss) {
  entry(sample).told = sample.info.has_target;
  entry(sample).loss = loss;
}

}  // namespace millrace::app
