// What several snapshots show: rates, loads, recent percentiles and history.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "engine/monitor/downsampled.h"
#include "io/source/frame.h"
#include "tools/page/live_state.h"

namespace millrace::page {

using io::Clock;

/// A snapshot and what follows from earlier ones.
struct Live {
  Snapshot now;
  double seconds = 0;        ///< since the first snapshot
  double fps = 0;            ///< frames trained a second, of the last two seconds
  double dropped_fps = 0;    ///< frames dropped a second, of the last two seconds
  std::vector<double> load;  ///< by stage: share of the last two seconds at work, 0 to 1
  double latency_p50 = 0, latency_p99 = 0;   ///< of the last ten seconds, milliseconds
  std::int64_t trained_since_reconnect = 0;  ///< a lower bound
  double still_s = 0;                        ///< since the last frame was done
  bool stalled = false;                      ///< that is long, by the stream's own pace
};

/// The names of a TrendPoint's numbers.
inline constexpr std::array<const char*, 12> kTrendColumns = {
    "t",        "frame",      "loss",   "mean_frame",  "fps",         "dropped_fps",
    "T_over_N", "bottleneck", "budget", "latency_p50", "latency_p99", "events"};
using TrendHistory = engine::Downsampled<kTrendColumns.size()>;
using TrendPoint = TrendHistory::Row;

/// Takes a few snapshots a second. Thread-bound.
class Trend {
 public:
  const Live& add(Snapshot snapshot, Clock::time_point now);
  const Live& live() const { return live_; }
  /// The last five minutes, a point a second; and the whole run.
  const std::deque<TrendPoint>& recent() const { return recent_; }
  const std::vector<TrendPoint>& whole() const { return whole_.points(); }

 private:
  struct Mark {
    Clock::time_point at;
    std::int64_t trained, dropped;
    std::vector<double> busy_ns;  ///< by stage, of all steps so far
    engine::Histogram latency;
  };
  const Mark& mark_before(Clock::time_point now, double seconds) const;
  void derive(Clock::time_point now);
  void count_since_reconnect();
  void remember(Clock::time_point now);

  Live live_;
  std::deque<Mark> marks_;  ///< the last ten seconds, a few a second
  Clock::time_point first_, last_point_, last_moved_;
  std::int64_t reconnects_ = 0, trained_at_reconnect_ = 0;
  std::deque<TrendPoint> recent_;
  TrendHistory whole_{600};
};

}  // namespace millrace::page
