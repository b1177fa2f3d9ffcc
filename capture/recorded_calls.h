// The calls of one step, each recorded once, and their launches.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "capture/backend.h"

namespace millrace::capture {

/// Calls by the numbers that their recordings depend on. On a backend that defers, all that was
/// called between two launches is one graph; on one that does not, each call is launched at once.
/// Thread-bound. Replaying allocates nothing.
class RecordedCalls {
 public:
  /// A kind, a slot, a weight buffer, and what else the kind depends on.
  using Key = std::tuple<int, int, int, int, int>;

  /// `backend` outlives it. `room`: launches that may be under way at once.
  RecordedCalls(Backend& backend, std::size_t room);

  void begin_capture_pass() { capturing_ = true; }
  void end_capture_pass() { capturing_ = false; }
  bool capturing() const { return capturing_; }

  /// Notes a call for the next launch. In the capture pass it is recorded from `body` if `key` is
  /// new, in memory pool `pool`; `node` has the rest of what it is in a graph. Throws
  /// std::logic_error for a new key after the capture pass.
  template <class Body>
  void call(const Key& key, int pool, GraphNode node, const Body& body) {
    auto found = numbers_.find(key);
    if (found == numbers_.end()) found = record(key, pool, node, body);
    called_.push_back(found->second);
    if (!backend_.defers()) launch();
  }
  /// Launches what was called since; in the capture pass, makes its graph. Returns how many
  /// launches there were.
  std::int64_t launch();
  /// Whether the launch of that number and all before it are over. Asked in order.
  bool over(std::int64_t launch);
  /// How long the launch that over() last found over took.
  std::int64_t duration_ns() const { return duration_ns_; }
  /// What one recording of each kind consists of.
  std::vector<OperationInfo> operations() const;

 private:
  using Numbers = std::map<Key, int>;
  Numbers::iterator record(const Key& key, int pool, GraphNode node,
                           const std::function<void()>& body);
  std::unique_ptr<Graph> assembled(const std::vector<int>& numbers) const;
  void start(Graph& graph);

  Backend& backend_;
  bool capturing_ = false;
  Numbers numbers_;  ///< of nodes_
  std::vector<std::unique_ptr<Recording>> recordings_;
  std::vector<GraphNode> nodes_;
  std::vector<int> called_;  ///< since the last launch
  /// Of the capture pass's launch groups.
  std::map<std::vector<int>, std::unique_ptr<Graph>> graphs_;
  /// Of a node each, for launch groups that are cut short.
  std::vector<std::unique_ptr<Graph>> alone_;
  /// Launches not known to be over: launch number n at n mod size.
  std::vector<Graph*> under_way_;
  std::int64_t launched_ = 0, over_ = 0, duration_ns_ = 0;
};

}  // namespace millrace::capture
