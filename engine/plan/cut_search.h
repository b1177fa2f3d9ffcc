// Whether a network fits a machine within a period: the dynamic program behind best_cut().
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/cut.h"

namespace millrace::engine::plan {

/// The places of a stage.
struct Width {
  int replicas = 1;
  int threads = 1;
  int places() const { return replicas * threads; }
};

/// Tables for one model, reused from period to period. Not thread-safe.
class CutSearch {
 public:
  CutSearch(const CostModel& model, const Freedom& freedom);

  /// A cut whose stages all stay within `period`, on the fewest places; empty: there is none.
  std::vector<Stage> within(double period);

  /// A cut within `period` other than `known`, which is within it, too; empty: there is none.
  /// Another cut differs from the known one in some first stage: tries a different one at each
  /// step.
  std::vector<Stage> within_other_than(const std::vector<Stage>& known, double period);

  /// The widths a stage may have, narrowest first.
  const std::vector<Width>& widths() const { return widths_; }

 private:
  struct Origin {
    std::int16_t width = -1;  ///< of the stage that begins here; -1: not reached
    std::int16_t end = 0;     ///< where the stage ends
  };
  /// The farthest end of a stage, by where it begins.
  using Limits = std::vector<std::int16_t>;

  Stage stage_at(int width, int tail, int begin, int end) const;
  const Limits& memory_limits(int width, int tail);
  const Limits& time_limits(int width, const Link& agree, double period);
  void start(double period);           ///< the tables anew
  void grow(int tail, double period);  ///< tails of one place more
  std::vector<Stage> leaving(const std::vector<Stage>& known, std::size_t at, double period);
  void bound_states(double period);
  void extend(int width, int tail, double period);
  void extend_beside(int width, int tail, double period, const Limits& limits);
  void extend_adding(int width, int tail, double period, const Limits& limits);
  bool may_begin(int tail, int begin) const;
  bool is_end(int tail, int end) const;
  /// The stages of a tail from module `begin` on.
  std::vector<Stage> trace(int tail, int begin = 0) const;

  const CostModel& model_;
  int modules_, places_;
  bool exact_;  ///< all places must be taken
  std::vector<Width> widths_;
  double efficiency_ = 1;                    ///< the most work a place does in a unit of time
  std::vector<std::vector<Origin>> origin_;  ///< [places of the tail][its first module]
  std::vector<int> first_, last_;            ///< modules a tail of so many places may begin at
  std::vector<std::vector<Limits>> memory_limits_;  ///< [width][places of the tail]
  struct TimeLimits {
    const Link* agree;
    Limits limits;
  };
  std::vector<std::vector<TimeLimits>> time_limits_;  ///< [width], of this period
  Limits limits_;                                     ///< of the width and tail at hand
};

}  // namespace millrace::engine::plan
