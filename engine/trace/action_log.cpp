#include "engine/trace/action_log.h"

#include <algorithm>

namespace millrace::engine {

ActionTrack::ActionTrack(int worker, std::size_t capacity, Clock::time_point origin)
    : worker_(worker), origin_(origin), ring_(capacity) {}

std::vector<Span> ActionTrack::spans() const {
  const std::size_t kept = std::min(std::size_t(count_), ring_.size());
  std::vector<Span> spans(ring_.begin(), ring_.begin() + std::ptrdiff_t(kept));
  std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
    return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns < b.end_ns;
  });
  return spans;
}

std::int64_t ActionTrack::lost() const {
  return std::max<std::int64_t>(0, count_ - std::int64_t(ring_.size()));
}

ActionLog::ActionLog(int workers, std::size_t capacity, bool operations)
    : operations_(operations), counts_(kCounts) {
  const std::size_t each = std::max<std::size_t>(1, capacity / std::size_t(workers));
  for (int worker = 0; worker < workers; ++worker) tracks_.emplace_back(worker, each, origin_);
}

std::vector<Counts> ActionLog::counts() const {
  if (counted_ <= kCounts) return {counts_.begin(), counts_.begin() + std::ptrdiff_t(counted_)};
  std::vector<Counts> all = counts_;
  std::rotate(all.begin(), all.begin() + std::ptrdiff_t(counted_ % kCounts), all.end());
  return all;
}

std::vector<Span> ActionLog::spans() const {
  std::vector<Span> all;
  for (const ActionTrack& track : tracks_) {
    const std::vector<Span> spans = track.spans();
    all.insert(all.end(), spans.begin(), spans.end());
  }
  return all;
}

std::int64_t ActionLog::lost() const {
  std::int64_t lost = 0;
  for (const ActionTrack& track : tracks_) lost += track.lost();
  return lost;
}

std::string trace_json(const ActionLog& actions, const Schedule& schedule) {
  const std::int64_t lost = actions.lost();
  const std::string title =
      schedule.name + (lost > 0 ? ", without its first " + std::to_string(lost) + " events" : "");
  return trace_json(title, worker_names(schedule), actions.spans(), actions.counts());
}

}  // namespace millrace::engine
