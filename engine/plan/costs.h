// What a step costs: the types that profile, plan and simulate share. Times are milliseconds and
// sizes bytes of one sample, unless said otherwise.
#pragma once

namespace millrace::engine::plan {

/// The time of a module's or a stage's step, by its parts. The update applies one gradient, however
/// many samples it is the mean of.
struct StepCosts {
  double forward = 0;
  double input_gradient = 0;   ///< 0 in the first module, which needs none
  double weight_gradient = 0;  ///< 0 where there are no weights
  double update = 0;

  double backward() const { return input_gradient + weight_gradient; }
  double total() const { return forward + backward() + update; }

  StepCosts& operator+=(const StepCosts& other) {
    forward += other.forward;
    input_gradient += other.input_gradient;
    weight_gradient += other.weight_gradient;
    update += other.update;
    return *this;
  }
  bool operator==(const StepCosts&) const = default;
};

/// What a module or a stage keeps, and what it sends to its neighbours.
struct StepBytes {
  double activation = 0;  ///< its output, sent downstream
  double gradient = 0;    ///< the gradient of that output, sent back by the stage downstream
  double weight = 0;      ///< one version of its weights; the gradient of them is as large
  double state = 0;       ///< the optimizer's: momentum, moments
  double stash = 0;       ///< saved between a sample's forward and its backward
  bool operator==(const StepBytes&) const = default;
};

/// One stage's sums, which plan and simulate work with.
struct StageCosts {
  StepCosts ms;
  StepBytes bytes;  ///< activation, gradient: those of the last module

  /// `next`: of the module behind.
  StageCosts& operator+=(const StageCosts& next) {
    ms += next.ms;
    bytes = {next.bytes.activation, next.bytes.gradient, bytes.weight + next.bytes.weight,
             bytes.state + next.bytes.state, bytes.stash + next.bytes.stash};
    return *this;
  }
  bool operator==(const StageCosts&) const = default;
};

/// A connection between two devices. A message takes latency + bytes / bandwidth.
struct Link {
  double latency_ms = 0;
  double bytes_per_ms = 0;  ///< 1 GB/s = 1e6; 0: bytes cost nothing

  double ms(double bytes) const {
    return latency_ms + (bytes_per_ms > 0 ? bytes / bytes_per_ms : 0.0);
  }
  bool operator==(const Link&) const = default;
};

/// A ring all-reduce among `members`: each sends its neighbour 2 (members - 1) pieces of
/// bytes / members (Patarasuk and Yuan, JPDC 2009). 0 for one member.
inline double all_reduce_ms(const Link& slowest, double bytes, int members) {
  if (members < 2) return 0;
  return 2.0 * (members - 1) * slowest.ms(bytes / members);
}

}  // namespace millrace::engine::plan
