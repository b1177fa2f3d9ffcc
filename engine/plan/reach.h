// Whether a network fits a machine within a period: the dynamic programme behind best_cut().
#pragma once

#include <cstdint>   // tables
#include <optional>  // forbidden stage
#include <vector>    // tables

#include "engine/plan/cut.h"

namespace millrace::engine::plan {

/// How many places a stage takes, and what they do.
struct Width {
  int replicas = 1;
  int threads = 1;
  int places() const { return replicas * threads; }
};

/// Tables for one model, reused from period to period. Not thread-safe.
class Reach {
 public:
  Reach(const CostModel& model, const Freedom& freedom, const std::optional<Stage>& forbidden);

  /// Some cut whose stages all stay within `period`, on the fewest places; empty if there is none.
  std::vector<Stage> within(double period);

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
  void bound_states(double period);
  void extend(int width, int tail, double period);
  void extend_beside(int width, int tail, double period, const Limits& limits);
  void extend_adding(int width, int tail, double period, const Limits& limits);
  bool may_begin(int tail, int begin) const;
  bool is_end(int tail, int end) const;
  void reached(int width, int tail, int begin, int end, double period);
  std::vector<Stage> trace(int tail) const;

  const CostModel& model_;
  std::optional<Stage> forbidden_;
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
