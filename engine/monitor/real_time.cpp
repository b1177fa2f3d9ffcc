#include "engine/monitor/real_time.h"

#include <algorithm>

#include "engine/format.h"

namespace millrace::engine {
namespace {

std::string text(double value) {
  return format("%.3g", value);
}

std::string frames(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " frame" : " frames");
}

}  // namespace

Verdict judge(const Reading& r, const FrameCounts& window, double window_s, bool late) {
  Verdict verdict{.judged = r.budget > 0, .window_s = window_s, .window = window};
  if (!verdict.judged) {
    verdict.reason = "the source has no rate (set monitor.fps)";
    return verdict;
  }
  verdict.holds = r.holds && window.dropped == 0 && !late;
  const std::string slowest = "slowest stage " + std::to_string(r.bottleneck_stage) + " takes " +
                              text(r.bottleneck) + " ms, 1/F is " + text(r.budget) + " ms";
  const std::string in_time = " in the last " + text(window_s) + " s";
  if (!r.holds) {
    verdict.reason = slowest;
  } else if (window.dropped > 0) {
    const std::int64_t lost = window.dropped - window.predicted_only;
    verdict.reason = "of " + frames(window.trained + window.dropped) + in_time + " ";
    if (lost > 0) verdict.reason += std::to_string(lost) + " dropped";
    if (window.predicted_only > 0) {
      verdict.reason += (lost > 0 ? ", " : "") + std::to_string(window.predicted_only) +
                        " predicted and not learned from";
    }
  } else if (late) {
    verdict.reason = "lately a frame takes longer than 1/F";
  } else {
    verdict.reason = "every frame" + in_time + " was learned from; " + slowest;
  }
  return verdict;
}

std::string rule_text(const Reading& r, const Verdict& verdict) {
  const std::string times =
      "T/N " + text(r.T_over_N) + " ms, slowest stage " + text(r.bottleneck) + " ms";
  if (!verdict.judged)
    return times + (r.budget > 0 ? " (" + verdict.reason + ")" : " (no rate to hold)");
  const std::string why = r.holds && !verdict.holds ? " (" + verdict.reason + ")" : "";
  return times + " of 1/F " + text(r.budget) + " ms: " + (verdict.holds ? "HOLDS" : "FAILS") + why;
}

void RealTime::note(const FrameCounts& now, bool late, Clock::time_point time) {
  const std::lock_guard lock(mutex_);
  late_ = late;
  if (time < resumes_by_ && !seen_.empty()) {
    leave_out(now, time);
    if (now.trained == seen_.back().second.trained) return;
    resumes_by_ = {};
  }
  if (now.trained == 0) seen_.clear();
  if (seen_.empty() || now.trained > seen_.back().second.trained) trained_ = time;
  seen_.emplace_back(time, now);
  const auto filling = [](const auto& then) { return then.second.trained == 0; };
  while (seen_.size() > 2 && (filling(seen_.front()) || seen_[1].first <= time - kWindow))
    seen_.pop_front();
}

void RealTime::pause(const FrameCounts& now, Clock::time_point time) {
  constexpr std::chrono::seconds kResumes{2};
  const std::lock_guard lock(mutex_);
  resumes_by_ = time + kResumes;
  if (!seen_.empty()) leave_out(now, time);
}

void RealTime::leave_out(const FrameCounts& now, Clock::time_point time) {
  const auto [last, before] = seen_.back();
  for (auto& [then, counts] : seen_) {
    then += time - last;
    counts.dropped += now.dropped - before.dropped;
    counts.predicted_only += now.predicted_only - before.predicted_only;
  }
  trained_ += time - last;
}

bool RealTime::began() const {
  const std::lock_guard lock(mutex_);
  return !seen_.empty() && seen_.back().second.trained > 0;
}

Verdict RealTime::verdict(const Reading& reading) const {
  if (!began()) return {.holds = false, .reason = "no frame was learned from yet"};
  const std::lock_guard lock(mutex_);
  const auto& [now, counts] = seen_.back();
  const std::chrono::duration<double> passed = now - seen_.front().first, silent = now - trained_;
  const FrameCounts& before = seen_.front().second;
  const FrameCounts window{.trained = counts.trained - before.trained,
                           .dropped = counts.dropped - before.dropped,
                           .predicted_only = counts.predicted_only - before.predicted_only};
  if (silent.count() >= std::max(5.0, 3e-3 * reading.budget)) {
    return {.holds = false,
            .window_s = passed.count(),
            .window = window,
            .reason = "no frame was learned from in the last " + text(silent.count()) + " s"};
  }
  return judge(reading, window, passed.count(), late_);
}

}  // namespace millrace::engine
