// Says when a stream is too fast for the pipeline, and what to change about it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace millrace::engine {

/// What a run has taken so far; two of them make a Load.
struct Totals {
  struct Stage {
    int replicas = 1;
    std::int64_t steps = 0, busy_ns = 0;  ///< of all replicas; compute and hand-off
  };
  std::vector<Stage> stages;
  /// Frames admitted after another, and the time from being given the one before to asking for
  /// them: what the pipeline takes for a frame when the stream does not hold it up.
  std::int64_t frames = 0, frames_ns = 0;
};

/// Means over a stretch of frames, in milliseconds.
struct Load {
  std::vector<double> stage;  ///< a frame's step, with hand-off; over the replicas' number
  double frame = 0;           ///< from admitting a frame to asking for the next one
  double budget = 0;          ///< 1/F; 0: no rate to hold

  int slowest() const;  ///< stage
  /// What sets the rate: the slowest stage, or what schedules add that have stages wait in turn.
  double took() const;
};

/// Frames that every stage has worked on between `before` and `after`.
std::int64_t frames_between(const Totals& before, const Totals& after);
/// The load between them; every stage must have made a step. `budget`: 1/F in milliseconds, or 0.
Load load_between(const Totals& before, const Totals& after, double budget);

/// What is done when 1/F cannot be met.
enum class Policy {
  drop,   ///< nothing: the queue keeps the newest frame
  skip,   ///< all frames are predicted, every k-th is learned from
  recut,  ///< the network is cut elsewhere where that makes the slowest stage faster
};
/// By their names in a config.
const std::vector<std::string>& policy_names();
/// Throws std::invalid_argument for another name.
Policy policy_of(const std::string& name);

/// What has changed, and why.
struct Change {
  enum class Kind { none, late, in_time, train_every, recut };
  Kind kind = Kind::none;
  int stage = -1;  ///< the slowest; -1: no single stage is over the budget
  double took_ms = 0, budget_ms = 0;
  std::int64_t from_every = 1, train_every = 1;  ///< of Kind::train_every
  std::vector<int> from_cut, cut;                ///< of Kind::recut
};
/// "train every: 1 -> 3: stage 1 took 41.2 ms of 33.3 ms": one line, with the reason; "" for none.
std::string text(const Change& change);

struct OverloadOptions {
  Policy policy = Policy::drop;
  std::vector<double> module_ms;  ///< recut: what each module costs, any unit
  std::vector<int> cut;           ///< recut: where stages 1.. begin
  /// recut: whether a cut may be; empty: any.
  std::function<bool(const std::vector<int>&)> allowed;
};

/// Judges one load after another. It acts on two in a row that are over the budget and gives way on
/// three with clear room, and never on one that a change of its own fell into, so that neither a
/// hiccup nor its own doing sets it off; it undoes nothing that would be late again at these costs.
/// Not thread-safe.
class Overload {
 public:
  static constexpr std::int64_t kMostEvery = 32;  ///< at least every so manieth frame is learned

  explicit Overload(OverloadOptions options);

  /// The change that `load` asks for; the caller carries it out.
  Change judge(const Load& load);
  /// Frames that a load should be the mean of: some, and whole rounds of trained and left-out ones.
  std::int64_t window() const;
  /// Whether so many frames in so many seconds make a load: window() of them, or a few where that
  /// would take long. A stream that is too fast is thus answered within 3 s.
  bool enough(std::int64_t frames, double seconds) const;

  bool late() const { return late_; }  ///< and nothing more can be done about it
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
  int over_ = 0, under_ = 0;               ///< loads in a row
  bool settling_ = true;                   ///< the next load has seen a change, or the start
  std::int64_t loads_ = 0, next_cut_ = 0;  ///< loads so far; when a cut may change again
  std::int64_t pause_;                     ///< loads between changes of the cut
};

}  // namespace millrace::engine
