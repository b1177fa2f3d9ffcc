#include "capture/recorded_calls.h"

#include <optional>
#include <stdexcept>

namespace millrace::capture {
namespace {

/// One launch in 16, since timing takes 4 us on an H100: multiples of the golden ratio, so that the
/// graphs of a cycle take turns however long it is.
bool is_timed(std::int64_t launch) {
  return std::uint64_t(launch) * 0x9e3779b97f4a7c15u >> 60 == 0;
}

}  // namespace

RecordedCalls::RecordedCalls(Backend& backend, std::size_t room)
    : backend_(backend), under_way_(room) {
  called_.reserve(64);
}

RecordedCalls::Numbers::iterator RecordedCalls::record(const Key& key,
                                                       const std::function<void()>& body,
                                                       GraphNode node) {
  if (!capturing) throw std::logic_error("a step that the capture pass did not record");
  recordings_.push_back(backend_.record(key.slot, body));
  node.recording = recordings_.back().get();
  const int number = int(nodes_.size());
  nodes_.push_back(node);
  alone_.push_back(assembled({number}));
  return numbers_.emplace(key, number).first;
}

std::int64_t RecordedCalls::launch() {
  const auto group = graphs_.find(called_);
  const bool known = group != graphs_.end();
  if (capturing) {
    if (called_.size() > 1 && !known) graphs_.emplace(called_, assembled(called_));
  } else if (known) {
    start(*group->second);
  } else {  // cut short by end of stream, roll-back etc.
    for (const int number : called_) start(*alone_[number]);
  }
  called_.clear();
  return launched_;
}

std::unique_ptr<Graph> RecordedCalls::assembled(const std::vector<int>& numbers) const {
  std::vector<GraphNode> nodes;
  for (const int number : numbers) nodes.push_back(nodes_[number]);
  return backend_.assemble(nodes);
}

void RecordedCalls::start(Graph& graph) {
  const auto room = std::int64_t(under_way_.size());
  if (launched_ - over_ == room) {
    backend_.synchronize();
    over(launched_);
  }
  if (launched_ < room || is_timed(launched_)) {
    graph.launch();
  } else {
    graph.launch_untimed();
  }
  under_way_[launched_++ % room] = &graph;
}

bool RecordedCalls::over(std::int64_t launch) {
  while (over_ < launch) {
    Graph& next = *under_way_[over_ % std::int64_t(under_way_.size())];
    if (!next.over()) return false;
    duration_ns_ = next.duration_ns();
    ++over_;
  }
  return true;
}

std::vector<OperationInfo> RecordedCalls::operations() const {
  std::vector<OperationInfo> all;
  std::optional<Kind> seen;  // recordings of one kind differ only in slots and buffers
  for (const auto& [key, number] : numbers_) {
    if (seen == key.kind) continue;
    seen = key.kind;
    const std::vector<OperationInfo>& own = recordings_[number]->operations;
    all.insert(all.end(), own.begin(), own.end());
  }
  return all;
}

}  // namespace millrace::capture
