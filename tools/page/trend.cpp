#include "tools/page/trend.h"

#include <algorithm>  // bounds

namespace millrace::io {
namespace {

constexpr double kRateSeconds = 2;      // short enough to see, long enough not to flicker
constexpr double kLatencySeconds = 10;  // a p99 needs some frames
constexpr double kPointSeconds = 1;
constexpr std::size_t kRecentPoints = 300;

double seconds(Clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

}  // namespace

void TrendHistory::add(const TrendPoint& point) {
  for (std::size_t i = 0; i < point.size(); ++i) open_[i] += point[i];
  if (++filled_ < width_) return;
  for (double& value : open_) value /= width_;
  points_.push_back(open_);
  open_ = {};
  filled_ = 0;
  if (points_.size() < most_) return;
  for (std::size_t i = 0; i < most_ / 2; ++i) {
    for (std::size_t k = 0; k < point.size(); ++k) {
      points_[i][k] = (points_[2 * i][k] + points_[2 * i + 1][k]) / 2;
    }
  }
  points_.resize(most_ / 2);
  width_ *= 2;
}

const Live& Trend::add(Snapshot snapshot, Clock::time_point now) {
  if (marks_.empty()) first_ = last_moved_ = now;
  if (snapshot.trained != live_.now.trained) last_moved_ = now;
  live_.now = std::move(snapshot);
  live_.seconds = seconds(now - first_);
  live_.still_s = seconds(now - last_moved_);
  // The run may have seen its source break and come back before anybody looked on.
  if (marks_.empty()) reconnects_ = live_.now.stream.reconnects;
  marks_.push_back({now, live_.now});
  while (marks_.size() > 1 && seconds(now - marks_[1].at) >= kLatencySeconds) marks_.pop_front();
  count_since_reconnect();
  derive(now);
  remember(now);
  return live_;
}

// The latest mark at least so old, or the oldest.
const Trend::Mark& Trend::mark_before(Clock::time_point now, double age) const {
  for (auto mark = marks_.rbegin(); mark != marks_.rend(); ++mark) {
    if (seconds(now - mark->at) >= age) return *mark;
  }
  return marks_.front();
}

void Trend::derive(Clock::time_point now) {
  const Snapshot& latest = live_.now;
  const Mark& mark = mark_before(now, kRateSeconds);
  const double passed = seconds(now - mark.at);
  live_.load.assign(latest.stages.size(), 0.0);
  if (passed > 0) {
    live_.fps = double(latest.trained - mark.snapshot.trained) / passed;
    live_.dropped_fps = double(latest.dropped - mark.snapshot.dropped) / passed;
    const std::size_t stages = std::min(latest.stages.size(), mark.snapshot.stages.size());
    for (std::size_t i = 0; i < stages; ++i) {
      const StageState& stage = latest.stages[i];
      const double busy = stage.busy.sum() - mark.snapshot.stages[i].busy.sum();
      live_.load[i] = std::clamp(busy / passed / std::max(1, stage.replicas), 0.0, 1.0);
    }
  }
  Distribution latency = latest.latency;
  if (marks_.size() > 1) latency -= marks_.front().snapshot.latency;
  live_.latency_p50 = latency.quantile(0.5) * 1e3;
  live_.latency_p99 = latency.quantile(0.99) * 1e3;
}

// A reconnection is noticed at the next snapshot; frames trained before that are not claimed.
void Trend::count_since_reconnect() {
  const StreamState& stream = live_.now.stream;
  if (stream.reconnects != reconnects_) {
    reconnects_ = stream.reconnects;
    trained_at_reconnect_ = live_.now.trained;
  }
  live_.trained_since_reconnect = live_.now.trained - trained_at_reconnect_;
}

void Trend::remember(Clock::time_point now) {
  const bool first = whole_.points().empty() && recent_.empty();
  if (!first && seconds(now - last_point_) < kPointSeconds) return;
  last_point_ = now;
  const Snapshot& s = live_.now;
  if (s.trained == 0) return;  // nothing to draw yet
  const TrendPoint point = {live_.seconds,       double(s.trained), s.loss_recent,
                            s.mean_frame_recent, live_.fps,         live_.dropped_fps,
                            s.T_over_N,          s.bottleneck,      s.budget,
                            live_.latency_p50,   live_.latency_p99, double(s.events)};
  recent_.push_back(point);
  if (recent_.size() > kRecentPoints) recent_.pop_front();
  whole_.add(point);
}

}  // namespace millrace::io
