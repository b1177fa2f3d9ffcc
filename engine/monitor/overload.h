// Decides when a stream outruns the pipeline, and what to change.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace millrace::engine {

/// Running totals of a run; the difference of two is a Load.
struct Totals {
  struct Stage {
    int replicas = 1;
    std::int64_t steps = 0, busy_ns = 0;  ///< of all replicas; compute and hand-off
  };
  std::vector<Stage> stages;
  /// Frames admitted after another, and the time from receiving one to asking for the next: the
  /// pipeline's own time for a frame, without waiting for the stream.
  std::int64_t frames = 0, frames_ns = 0;
};

/// Means over a stretch of frames, in milliseconds.
struct Load {
  std::vector<double> stage;  ///< a frame's step, with hand-off; over the replicas' number
  double frame = 0;           ///< from admitting a frame to asking for the next one
  double budget = 0;          ///< 1/F; 0: no rate to hold

  int slowest() const;  ///< stage
  /// What sets the rate: the slowest stage, or a frame's time if stages wait for each other.
  double took() const;
};

/// Frames that every stage has worked on between `before` and `after`.
std::int64_t frames_between(const Totals& before, const Totals& after);
/// The load between them; every stage must have made a step. `budget`: 1/F in milliseconds, or 0.
Load load_between(const Totals& before, const Totals& after, double budget);

/// What to do if 1/F cannot be met.
enum class Policy {
  drop,   ///< nothing: the queue keeps the newest frame
  skip,   ///< predict every frame, learn from every k-th
  recut,  ///< move the cut if that makes the slowest stage faster
};
/// The policies' names in a config.
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

/// Judges one load after another. Acts on two in a row over the budget and relaxes on three with
/// clear room, but ignores a load during which it made a change itself: neither a hiccup nor its
/// own change triggers it. It never relaxes to a state that would be late again. Not thread-safe.
class Overload {
 public:
  static constexpr std::int64_t kMostEvery = 32;  ///< at least every 32nd frame is learned from

  explicit Overload(OverloadOptions options);

  /// The change that `load` asks for; the caller carries it out.
  Change judge(const Load& load);
  /// Frames that a load should be the mean of; a multiple of trained and skipped ones.
  std::int64_t window() const;
  /// Whether so many frames in so many seconds make a load: window() of them, or a few if that
  /// would take long. So the answer to a stream that is too fast comes within 3 s.
  bool enough(std::int64_t frames, double seconds) const;

  bool late() const { return late_; }  ///< and no change can help
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
  int over_ = 0, under_ = 0;  ///< loads in a row
  bool settling_ = true;      ///< the next load includes a change, or the start: ignore it
  std::int64_t loads_ = 0, next_cut_ = 0;  ///< loads so far; when a cut may change again
  std::int64_t pause_;                     ///< loads between changes of the cut
};

}  // namespace millrace::engine
