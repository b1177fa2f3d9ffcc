#pragma once

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "capture/backend.h"

namespace millrace::capture {

/// Calls keyed by the numbers their recordings depend on. Between two launches, a backend that
/// defers gets them as one graph; any other gets each at once, and an eager one the bodies
/// themselves. Thread-bound. Replay allocates nothing.
class RecordedCalls {
 public:
  enum class Kind {
    forward,
    show,
    compare,
    backward_local,
    recompute,
    backward,
    backward_input,
    backward_weight,
    update
  };
  /// What the recording of a call depends on.
  struct Key {
    Kind kind;
    int slot, buffer;    ///< recordings of one slot share a memory pool
    int more = 0;        ///< gradient slot, or count of gradients
    bool first = false;  ///< gradients overwrite what was there; update: an auxiliary head has none
    auto operator<=>(const Key&) const = default;
  };

  /// `backend` outlives it. `room`: most launches in flight at once.
  RecordedCalls(Backend& backend, std::size_t room);

  bool capturing = false;  ///< in the capture pass, which records new calls and makes none

  /// Makes a call, or notes it for the next launch. In the capture pass, records `body` if `key` is
  /// new, with the events of `node`. Throws std::logic_error for a key not recorded there.
  template <class Body>
  void call(const Key& key, const Body& body, const GraphNode& node = {}) {
    if (!backend_.records()) return run(body);
    auto found = numbers_.find(key);
    if (found == numbers_.end()) found = record(key, body, node);
    if (backend_.defers()) {
      called_.push_back(found->second);
    } else if (!capturing) {
      alone_[std::size_t(found->second)]->launch();
    }
  }
  /// Records `body` in the capture pass if `key` is new, without calling it.
  template <class Body>
  void record_only(const Key& key, const Body& body, const GraphNode& node) {
    if (capturing && !numbers_.contains(key)) record(key, body, node);
  }
  /// Runs `body` unrecorded.
  template <class Body>
  void run(const Body& body) {
    if (backend_.defers()) return backend_.run(body);
    backend_.run(std::ref(body));  // blocks, so a reference is enough and nothing is allocated
  }
  /// Launches the calls noted since; in the capture pass, assembles their graph. Returns the total.
  std::int64_t launch();
  /// Whether launch number `launch` and all before it are over. Query in order.
  bool over(std::int64_t launch);
  /// Duration of the launch that over() last found over.
  std::int64_t duration_ns() const { return duration_ns_; }
  std::vector<OperationInfo> operations() const;

 private:
  using Numbers = std::map<Key, int>;
  Numbers::iterator record(const Key& key, const std::function<void()>& body, GraphNode node);
  std::unique_ptr<Graph> assembled(const std::vector<int>& numbers) const;
  void start(Graph& graph);

  Backend& backend_;
  Numbers numbers_;  ///< indices into nodes_
  std::vector<std::unique_ptr<Recording>> recordings_;
  std::vector<GraphNode> nodes_;
  std::vector<int> called_;  ///< since the last launch
  /// Graphs of the capture pass's launch groups, keyed by indices into nodes_.
  std::map<std::vector<int>, std::unique_ptr<Graph>> graphs_;
  /// One per node, for launch groups that are cut short.
  std::vector<std::unique_ptr<Graph>> alone_;
  /// Launches not known to be over; launch n at n mod size.
  std::vector<Graph*> under_way_;
  std::int64_t launched_ = 0, over_ = 0, duration_ns_ = 0;
};

}  // namespace millrace::capture
