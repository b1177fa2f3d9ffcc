#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace millrace::engine {

/// Totals since the start; load_between() subtracts two.
struct Totals {
  struct Stage {
    int replicas = 1;
    std::int64_t steps = 0, busy_ns = 0;  ///< of all replicas; compute + hand-off
  };
  std::vector<Stage> stages;
  /// Frames that followed another, and the time from receiving one to asking for the next: the
  /// pipeline's own time per frame, without waiting for the stream.
  std::int64_t frames = 0, frames_ns = 0;
};

struct Load {
  std::vector<double> stage;  ///< a frame's compute + hand-off, divided by the replicas
  double frame = 0;           ///< from admitting a frame to asking for the next one
  double budget = 0;          ///< 1/F; 0: no rate to hold

  int slowest() const;  ///< stage
  /// What limits the rate: the slowest stage, or a frame's time if stages wait for each other.
  double took() const;
};

/// Frames that every stage worked on between `before` and `after`.
std::int64_t frames_between(const Totals& before, const Totals& after);
/// Every stage must have run a step in between. `budget`: 1/F in milliseconds, or 0.
Load load_between(const Totals& before, const Totals& after, double budget);

/// What to do if 1/F cannot be met.
enum class Policy {
  drop,   ///< nothing: the queue retains the newest frame
  skip,   ///< predict every frame, learn from every k-th
  recut,  ///< move the cut if that makes the slowest stage faster
};
const std::vector<std::string>& policy_names();
/// Throws std::invalid_argument for an unknown name.
Policy policy_of(const std::string& name);

struct Change {
  enum class Kind { none, late, in_time, train_every, recut };
  Kind kind = Kind::none;
  int stage = -1;  ///< the slowest; -1: no single stage is over the budget
  double took_ms = 0, budget_ms = 0;
  std::int64_t from_every = 1, train_every = 1;  ///< of Kind::train_every
  std::vector<int> from_cut, cut;                ///< of Kind::recut
};
/// "train every: 1 -> 3: stage 1 took 41.2 ms of 33.3 ms"; "" for none.
std::string text(const Change& change);

struct OverloadOptions {
  Policy policy = Policy::drop;
  std::vector<double> module_ms;  ///< recut: what each module costs, any unit
  std::vector<int> cut;           ///< recut: where stages 1.. begin
  /// recut: whether a cut is allowed; empty: any
  std::function<bool(const std::vector<int>&)> allowed;
};

/// Decides when a stream outruns the pipeline, and what to change. Acts after two loads in a row
/// over the budget; relaxes after three with clear room, but never to a state that would be late
/// again. Ignores a load that spans its own change, so it never reacts to itself. Not thread-safe.
class Overload {
 public:
  static constexpr std::int64_t kMostEvery = 32;  ///< trains on at least every 32nd frame

  explicit Overload(OverloadOptions options);

  Change judge(const Load& load);
  /// Frames that a load should average: several rounds of trained and skipped ones.
  std::int64_t window() const;
  /// Whether so many frames in so many seconds suffice for a load: window() of them, or a few if
  /// that takes long, so that a stream that is too fast is answered within 3 s.
  bool enough(std::int64_t frames, double seconds) const;

  bool late() const { return late_; }  ///< over the budget, and no change can help
  std::int64_t train_every() const { return every_; }
  const std::vector<int>& cut() const { return options_.cut; }

 private:
  Change respond(const Load& load);
  Change give_way(const Load& load);
  bool has_room(const Load& load) const;
  bool find_cut(const Load& load, Change& change);

  OverloadOptions options_;
  bool late_ = false;
  std::int64_t every_ = 1;
  int over_ = 0, under_ = 0;  ///< consecutive loads
  bool settling_ = true;      ///< the next load spans a change, or the start: ignore it
  std::int64_t loads_ = 0, next_cut_ = 0;  ///< loads so far; when a cut may change
  std::int64_t pause_;                     ///< loads between changes of the cut
};

/// Detects cores that run below their maximum, as on a hot or underpowered board: "cores run at
/// 1500 of 2400 MHz, 84 C" if even the core nearest its maximum runs below 90 % of it; else, or
/// without figures in `sys` (/sys), "". Call while cores are busy: idle ones are slow. Reentrant.
std::string slow_clock(const std::string& sys = "/sys");

}  // namespace millrace::engine
