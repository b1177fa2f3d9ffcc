#include "io/source/source_reconnecting.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

namespace millrace::io {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// Stamps that run further ahead of the clock than this have jumped.
constexpr nanoseconds kSlack = std::chrono::seconds(2);
// A stream with few frames a second is silent after so many missing ones.
constexpr int kMissing = 3;
// A connection that lasted so long was stable: the next wait is a short one again.
constexpr milliseconds kSound(2000);
// A connection that takes longer to close is left behind; at most so many are.
constexpr milliseconds kLetGo(1000);
constexpr int kMostPending = 4;
// Between two calls of the probe.
constexpr milliseconds kLook(50);

nanoseconds period_of(const SourceInfo& info) {
  return nanoseconds(info.fps > 0.0 ? std::int64_t(1e9 / info.fps) : 0);
}

std::uint64_t seed_of(const ReconnectOptions& options) {
  return options.seed ? options.seed : std::random_device{}();
}

milliseconds in_ms(nanoseconds time) {
  return std::chrono::duration_cast<milliseconds>(time);
}

}  // namespace

ReconnectingSource::ReconnectingSource(ReconnectParts parts, const ReconnectOptions& options)
    : options_(options),
      parts_(std::move(parts)),
      info_(parts_.first->info()),
      backoff_(options.least, options.most, seed_of(options)),
      timeline_(period_of(info_), kSlack),
      now_(std::move(parts_.first)),
      last_frame_(Clock::now()),
      connected_since_(last_frame_) {}

ReadStatus ReconnectingSource::read(Frame& out, milliseconds timeout) {
  if (!health_->connected && came_back()) attempt();
  if (now_) return read_connected(out, timeout);
  attempt_when_due(timeout);
  return ReadStatus::timeout;
}

ReadStatus ReconnectingSource::read_connected(Frame& out, milliseconds timeout) {
  const Clock::time_point before = Clock::now();
  ReadStatus status = ReadStatus::timeout;
  try {
    status = now_->read(out, timeout);
  } catch (const SourceError& broken) {
    lose(broken.what());
    return ReadStatus::timeout;
  }
  switch (status) {
    case ReadStatus::frame:
      take(out);
      break;
    case ReadStatus::corrupt:
      silent_ = nanoseconds(0);
      break;
    case ReadStatus::timeout:
      // Only time spent waiting here counts: a consumer that does not read, or a process that is
      // stopped for a while, does not make the stream silent.
      silent_ += std::min<nanoseconds>(Clock::now() - before, timeout);
      if (silent_ > patience()) {
        char cause[60];
        std::snprintf(cause, sizeof cause, "no picture for %.1f s", double(silent_.count()) / 1e9);
        lose(cause);
      }
      break;
    case ReadStatus::end:
      if (!parts_.end_is_loss) return ReadStatus::end;
      lose("the stream ended");
      return ReadStatus::timeout;
  }
  return status;
}

void ReconnectingSource::take(Frame& out) {
  const Clock::time_point now = Clock::now();
  if (!health_->connected) {
    info_ = now_->info();
    connected_since_ = now;
    health_->away_ms += in_ms(now - last_frame_).count();
    health_->frames_since = 0;
    ++health_->reconnects;
    health_->connected = true;
  } else if (now > connected_since_ + kSound) {
    backoff_.reset();  // it holds
  }
  silent_ = nanoseconds(0);
  out.pts = timeline_.map(out.pts, now - last_frame_);
  last_frame_ = now;
  ++health_->frames_since;
  health_->lost_upstream = timeline_.lost();
}

// A connection, or an attempt to make one.
void ReconnectingSource::lose(const std::string& cause) {
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
    reached_.reset();  // it was reachable and may not be any more
  }
  silent_ = nanoseconds(0);
}

void ReconnectingSource::attempt_when_due(milliseconds timeout) {
  const Clock::time_point now = Clock::now();
  if (now >= next_attempt_) return attempt();
  const nanoseconds left = next_attempt_ - now;
  std::this_thread::sleep_for(std::min<nanoseconds>({left, timeout, kLook}));
}

void ReconnectingSource::let_go() {
  teardown_.destroy(std::move(now_), kLetGo);
}

void ReconnectingSource::attempt() {
  let_go();
  silent_ = nanoseconds(0);
  next_attempt_ = Clock::now() + backoff_.next();
  if (teardown_.pending() >= kMostPending) {
    health_->set_last_error("earlier connections hang while they are closed");
    return;
  }
  ++health_->attempts;
  try {
    now_ = parts_.reopen();
  } catch (const SourceError& refused) {
    lose(refused.what());
  }
}

// True once when the origin becomes reachable again. A reachable one is not probed any more: the
// probes would fill the accept queue of a frozen server.
bool ReconnectingSource::came_back() {
  if (!parts_.probe || reached_ == true) return false;
  const std::optional<bool> answer = parts_.probe->poll();
  if (!answer) return false;
  const bool back = *answer && reached_ == false;
  reached_ = answer;
  if (back) backoff_.reset();
  return back;
}

milliseconds ReconnectingSource::patience() const {
  if (!health_->connected) return options_.open_limit;
  return std::max(options_.silence, in_ms(kMissing * timeline_.usual()));
}

}  // namespace millrace::io
