#pragma once

#include <algorithm>
#include <cmath>
#include <deque>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "engine/monitor/downsampled.h"
#include "io/source/frame.h"
#include "tools/page/live_state.h"

namespace millrace::page {

using io::Clock;

struct Live {
  /// The state also has "t", in seconds since the first snapshot; "rate" and the stages' "load",
  /// over the last two seconds; the latency's "recent_p50" and "recent_p99", over the last ten;
  /// "trained_since_reconnect", a lower bound; and "point", the newest of Trend::recent().
  Snapshot now;
  double still_s = 0;     ///< since the last finished frame
  bool stalled = false;   ///< still_s is long for this stream's rate
  bool untaught = false;  ///< for seconds, every frame had no target
};

struct TrendColumn {
  const char *name, *where;
};
inline constexpr TrendColumn kTrendColumns[] = {{"t", "/t"},
                                                {"frame", "/frames/trained"},
                                                {"loss", "/loss/recent"},
                                                {"mean_frame", "/loss/mean_frame/recent"},
                                                {"fps", "/rate/fps"},
                                                {"dropped_fps", "/rate/dropped_fps"},
                                                {"T_over_N", "/timing_ms/T_over_N"},
                                                {"bottleneck", "/timing_ms/bottleneck"},
                                                {"budget", "/realtime/budget_ms"},
                                                {"latency_p50", "/latency_ms/recent_p50"},
                                                {"latency_p99", "/latency_ms/recent_p99"},
                                                {"events", "/novelty/events"},
                                                {"deviation", "/novelty/deviation"}};
using TrendHistory = engine::Downsampled<std::size(kTrendColumns)>;
using TrendPoint = TrendHistory::Row;

/// Derives rates, loads, percentiles and history from a few snapshots a second. Thread-bound.
class Trend {
 public:
  const Live& add(Snapshot snapshot, Clock::time_point now) {
    if (marks_.empty()) first_ = last_moved_ = now;
    if (snapshot.frames.predicted() != live_.now.frames.predicted()) last_moved_ = now;
    live_.now = std::move(snapshot);
    state()["t"] = seconds(now - first_);
    live_.still_s = seconds(now - last_moved_);
    const std::int64_t frames = live_.now.frames.predicted();
    const double period = seconds(last_moved_ - first_) / double(std::max<std::int64_t>(1, frames));
    live_.stalled =
        frames > 0 && live_.still_s > std::max(kStalledSeconds, kStalledPeriods * period);
    // The source may have reconnected before the first snapshot.
    if (marks_.empty()) reconnects_ = reconnects();
    // Not for every snapshot: a mark takes some KiB, and there may be thousands of requests.
    if (marks_.empty() || seconds(now - marks_.back().at) >= kMarkSeconds) {
      const engine::FrameCounts& frames = live_.now.frames;
      marks_.push_back(
          {now, frames.predicted(), frames.trained, frames.dropped, {}, live_.now.latency});
      for (const engine::Histogram& busy : live_.now.busy)
        marks_.back().busy_ns.push_back(busy.sum());
    }
    while (marks_.size() > 1 && seconds(now - marks_[1].at) >= kLatencySeconds) marks_.pop_front();
    live_.untaught =
        seconds(now - marks_.front().at) >= kUntaughtSeconds && frames > marks_.front().predicted &&
        live_.now.frames.trained == marks_.front().trained && live_.now.frames.without_target > 0;
    count_since_reconnect();
    derive(now);
    remember(now);
    state()["point"] = recent_.empty() ? Json() : Json(recent_.back());
    return live_;
  }
  const Live& live() const { return live_; }
  /// The last five minutes, one point per second.
  const std::deque<TrendPoint>& recent() const { return recent_; }
  const std::vector<TrendPoint>& whole() const { return whole_.points(); }

 private:
  static constexpr double kRateSeconds = 2;      ///< smooth, yet prompt
  static constexpr double kLatencySeconds = 10;  ///< a p99 needs some frames
  static constexpr double kPointSeconds = 1;
  static constexpr double kStalledSeconds = 3, kStalledPeriods = 5;  ///< without a frame
  static constexpr double kUntaughtSeconds = 5;
  static constexpr double kMarkSeconds = 0.1;
  static constexpr std::size_t kRecentPoints = 300;

  static double seconds(Clock::duration d) { return std::chrono::duration<double>(d).count(); }
  struct Mark {
    Clock::time_point at;
    std::int64_t predicted, trained, dropped;
    std::vector<double> busy_ns;  ///< per stage, summed over all steps
    engine::Histogram latency;
  };
  // The latest mark at least `age` old, or the oldest mark.
  const Mark& mark_before(Clock::time_point now, double age) const {
    for (auto mark = marks_.rbegin(); mark != marks_.rend(); ++mark)
      if (seconds(now - mark->at) >= age) return *mark;
    return marks_.front();
  }
  Json& state() { return live_.now.state; }
  void derive(Clock::time_point now) {
    const Snapshot& latest = live_.now;
    const Mark& mark = mark_before(now, kRateSeconds);
    const double passed = seconds(now - mark.at);
    const auto rate = [&](double count) { return passed > 0 ? count / passed : 0.0; };
    state()["rate"] = {{"fps", rate(double(latest.frames.trained - mark.trained))},
                       {"predicted_fps", rate(double(latest.frames.predicted() - mark.predicted))},
                       {"dropped_fps", rate(double(latest.frames.dropped - mark.dropped))}};
    for (std::size_t i = 0; i < latest.busy.size(); ++i) {
      const double before = i < mark.busy_ns.size() ? mark.busy_ns[i] : latest.busy[i].sum();
      const double busy = (latest.busy[i].sum() - before) * 1e-9;
      const double replicas = number_at(state(), "/stages/" + std::to_string(i) + "/replicas");
      state()["stages"][i]["load"] = std::clamp(rate(busy) / std::max(1.0, replicas), 0.0, 1.0);
    }
    engine::Histogram latency = latest.latency;
    if (marks_.size() > 1) latency -= marks_.front().latency;
    state()["latency_ms"]["recent_p50"] = latency.median_ms();
    state()["latency_ms"]["recent_p99"] = latency.quantile_ms(0.99);
  }
  std::int64_t reconnects() const {
    return live_.now.state.value("/stream/reconnects"_json_pointer, std::int64_t(0));
  }
  // A reconnect is noticed at the next snapshot; frames trained before that are not counted.
  void count_since_reconnect() {
    if (reconnects() != reconnects_) {
      reconnects_ = reconnects();
      trained_at_reconnect_ = live_.now.frames.trained;
    }
    state()["frames"]["trained_since_reconnect"] = live_.now.frames.trained - trained_at_reconnect_;
  }
  void remember(Clock::time_point now) {
    // A point shows the largest deviation since the previous point, including events in between.
    peak_ = std::fmax(peak_, number_at(state(), "/novelty/deviation"));
    const double events = number_at(state(), "/novelty/events");
    if (events > events_) peak_ = std::fmax(peak_, number_at(state(), "/novelty/last/deviation"));
    events_ = events;
    const bool first = whole_.points().empty() && recent_.empty();
    if (!first && seconds(now - last_point_) < kPointSeconds) return;
    last_point_ = now;
    if (live_.now.frames.predicted() == 0) return;
    TrendPoint point;
    std::ranges::transform(kTrendColumns, point.begin(), [&](const TrendColumn& column) {
      return number_at(state(), column.where);
    });
    point.back() = std::exchange(peak_, std::numeric_limits<double>::quiet_NaN());
    recent_.push_back(point);
    if (recent_.size() > kRecentPoints) recent_.pop_front();
    whole_.add(point);
  }

  Live live_;
  std::deque<Mark> marks_;  ///< the last ten seconds, a few a second
  Clock::time_point first_, last_point_, last_moved_;
  double peak_ = std::numeric_limits<double>::quiet_NaN();  ///< deviation since the last point
  double events_ = 0;
  std::int64_t reconnects_ = 0, trained_at_reconnect_ = 0;
  std::deque<TrendPoint> recent_;
  TrendHistory whole_{600};
};

}  // namespace millrace::page
