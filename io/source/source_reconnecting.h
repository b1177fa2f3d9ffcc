#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "io/source/source.h"
#include "io/source/timeline.h"

namespace millrace::io {

/// Waits that double from `least` to `most`, each drawn from the upper half of its range, so that
/// the clients of a camera don't all return at the same moment. Thread-bound.
class Backoff {
 public:
  using milliseconds = std::chrono::milliseconds;

  /// Both 0: no waits.
  Backoff(milliseconds least, milliseconds most, std::uint64_t seed)
      : least_(std::max(least, milliseconds(0))), most_(std::max(most, least_)), random_(seed) {
    reset();
  }

  milliseconds next() {
    const milliseconds floor = std::max(least_, ceiling_ / 2);
    std::uniform_int_distribution<std::int64_t> draw(floor.count(), ceiling_.count());
    ceiling_ = std::min(2 * ceiling_, most_);
    return milliseconds(draw(random_));
  }
  void reset() { ceiling_ = std::min(2 * least_, most_); }

 private:
  const milliseconds least_;
  const milliseconds most_;
  milliseconds ceiling_;  // of the next wait
  std::mt19937_64 random_;
};

/// Whether a stream's origin is reachable; nothing while unknown. Never blocks; cheap to ask often.
/// A server that listens counts as reachable even if frozen. Thread-bound.
using OriginProbe = std::function<std::optional<bool>()>;

/// rtsp, http: whether the server's port is open, asked at most four times a second; v4l2: whether
/// the device exists. Null for other schemes, or without an address. Asks the name service.
OriginProbe make_origin_probe(const std::string& uri);

/// Joins the frames of successive connections with strictly growing stamps. While the stream is
/// away, read() returns `timeout` and takes little longer than that. Attempts follow a Backoff,
/// from start to start; one begins at once when the origin becomes reachable again.
class ReconnectingSource : public Source {
 public:
  /// Starts reopening the stream and returns at once; errors come through read(), or SourceError.
  using Reopen = std::function<std::unique_ptr<Source>()>;

  /// `first`: open. `probe` null: attempts follow time alone. `end_is_loss`: the end of the stream
  /// counts as a break.
  ReconnectingSource(const ReconnectOptions& options, std::unique_ptr<Source> first, Reopen reopen,
                     OriginProbe probe, bool end_is_loss)
      : options_(options),
        reopen_(std::move(reopen)),
        probe_(std::move(probe)),
        end_is_loss_(end_is_loss),
        info_(first->info()),
        backoff_(options.least, options.most, options.seed ? options.seed : std::random_device{}()),
        timeline_(frame_period(info_.fps), kSlack),
        now_(std::move(first)),
        last_frame_(Clock::now()),
        connected_since_(last_frame_) {}
  ~ReconnectingSource() override { let_go(); }

  /// From the latest connection with a picture.
  SourceInfo info() const override { return info_; }
  ReadStatus read(Frame& out, std::chrono::milliseconds timeout) override {
    if (!health_->connected) count_away();
    if (!health_->connected && came_back()) attempt();
    if (now_) return read_connected(out, timeout);
    attempt_when_due(timeout);
    return ReadStatus::timeout;
  }
  bool rewind() override { return false; }
  std::shared_ptr<const StreamHealth> health() const override { return health_; }

 private:
  /// Stamps further ahead of the clock have jumped.
  static constexpr std::chrono::nanoseconds kSlack = std::chrono::seconds(2);
  /// A slow stream is silent after this many missing frames.
  static constexpr int kMissing = 3;
  /// A connection this old is stable and resets the backoff.
  static constexpr std::chrono::milliseconds kSound{2000};
  /// A connection slower to close is abandoned; at most kMostPending are.
  static constexpr std::chrono::milliseconds kLetGo{1000};
  static constexpr std::size_t kMostPending = 4;
  static constexpr std::chrono::milliseconds kLook{50};  ///< between calls of the probe

  ReadStatus read_connected(Frame& out, std::chrono::milliseconds timeout) {
    const Clock::time_point before = Clock::now();
    ReadStatus status = ReadStatus::timeout;
    try {
      status = now_->read(out, timeout);
    } catch (const SourceError& broken) {
      lose(broken.what());
      return ReadStatus::timeout;
    }
    if (status == ReadStatus::frame) take(out);
    if (status == ReadStatus::corrupt) silent_ = std::chrono::nanoseconds(0);
    if (status == ReadStatus::timeout) stay_silent(Clock::now() - before, timeout);
    if (status != ReadStatus::end || !end_is_loss_) return status;
    lose("the stream ended");
    return ReadStatus::timeout;
  }
  // Only waiting in a read counts, not a consumer that doesn't read or a stopped process.
  void stay_silent(std::chrono::nanoseconds waited, std::chrono::nanoseconds timeout) {
    silent_ += std::min(waited, timeout);
    if (silent_ <= patience()) return;
    char cause[60];
    std::snprintf(cause, sizeof cause, "no picture for %.1f s", double(silent_.count()) / 1e9);
    lose(cause);
  }
  void take(Frame& out) {
    const Clock::time_point now = Clock::now();
    if (!health_->connected) {
      info_ = now_->info();
      timeline_.set_period(frame_period(info_.fps));
      connected_since_ = now;
      count_away();
      away_before_ = health_->away_ms;
      health_->frames_since = 0;
      ++health_->reconnects;
      health_->connected = true;
    } else if (now > connected_since_ + kSound) {
      backoff_.reset();  // the connection is stable
    }
    silent_ = std::chrono::nanoseconds(0);
    out.pts = timeline_.map(out.pts, now - last_frame_);
    last_frame_ = now;
    ++health_->frames_since;
    health_->lost_upstream = timeline_.lost();
  }
  void count_away() {
    health_->away_ms =
        away_before_ +
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - last_frame_).count();
  }
  // Loses a connection, or an attempt at one.
  void lose(const std::string& cause) {
    const Clock::time_point now = Clock::now();
    const bool silent = silent_ > patience();
    health_->set_last_error(cause);
    let_go();
    if (health_->connected) {
      health_->connected = false;
      ++health_->breaks;
      timeline_.broke_off();
      reached_.reset();
      next_attempt_ = now + backoff_.next();
    } else if (!silent && reached_ == true) {
      reached_.reset();  // the origin was reachable but may no longer be
    }
    silent_ = std::chrono::nanoseconds(0);
  }
  void attempt_when_due(std::chrono::milliseconds timeout) {
    const Clock::time_point now = Clock::now();
    if (now >= next_attempt_) return attempt();
    const std::chrono::nanoseconds left = next_attempt_ - now;
    std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>({left, timeout, kLook}));
  }
  void attempt() {
    let_go();
    silent_ = std::chrono::nanoseconds(0);
    next_attempt_ = Clock::now() + backoff_.next();
    std::erase_if(closing_, [](const auto& one) { return closed(one, std::chrono::seconds(0)); });
    if (closing_.size() >= kMostPending) {
      health_->set_last_error("earlier connections hang while they are closed");
      return;
    }
    ++health_->attempts;
    try {
      now_ = reopen_();
    } catch (const SourceError& refused) {
      lose(refused.what());
    }
  }
  static bool closed(const std::future<void>& closing, std::chrono::milliseconds limit) {
    return closing.wait_for(limit) == std::future_status::ready;
  }
  void let_go() {
    if (!now_) return;
    std::future<void> closing = destroy(std::move(now_));
    if (!closed(closing, kLetGo)) closing_.push_back(std::move(closing));
  }
  // True once when the origin becomes reachable again. A reachable origin isn't probed any more:
  // that would fill the accept queue of a frozen server.
  bool came_back() {
    if (!probe_ || reached_ == true) return false;
    const std::optional<bool> answer = probe_();
    if (!answer) return false;
    const bool back = *answer && reached_ == false;
    reached_ = answer;
    if (back) backoff_.reset();
    return back;
  }
  std::chrono::milliseconds patience() const {
    if (!health_->connected) return options_.open_limit;
    return std::max(options_.silence, std::chrono::duration_cast<std::chrono::milliseconds>(
                                          kMissing * timeline_.usual()));
  }

  const ReconnectOptions options_;
  const Reopen reopen_;
  const OriginProbe probe_;
  const bool end_is_loss_;
  const std::shared_ptr<StreamHealth> health_ = std::make_shared<StreamHealth>();
  SourceInfo info_;
  Backoff backoff_;
  Timeline timeline_;
  std::vector<std::future<void>> closing_;  // abandoned connections

  std::unique_ptr<Source> now_;         // null between attempts
  std::chrono::nanoseconds silent_{0};  // spent waiting for the next picture
  Clock::time_point last_frame_;        // over all connections
  Clock::time_point connected_since_;   // first picture of this connection
  Clock::time_point next_attempt_;
  std::int64_t away_before_ = 0;  // milliseconds, in breaks that ended
  std::optional<bool> reached_;   // the probe's last answer in this break
};

}  // namespace millrace::io
