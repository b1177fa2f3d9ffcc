// What a network costs, module by module: measured by `millrace profile`, or taken from a published
// table. Plan and simulate read it. Times are milliseconds and sizes bytes of one sample, unless
// said otherwise.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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

/// A profile that can't be used. The message is one line and names module and field.
struct ProfileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Milliseconds over some repeats.
struct Measured {
  double median = 0;
  double spread = 0;  ///< median absolute deviation
  bool operator==(const Measured&) const = default;
};

/// Speeds on 1, 2, ... cores, up to the first core that gains no more than the spread: what a plan
/// may count on, since a busy machine measures 0.07 on two.
std::vector<double> speeds_that_help(const std::vector<Measured>& speeds);

struct ModuleProfile {
  std::string name;
  Measured forward, input_gradient, weight_gradient, update;
  StepBytes bytes;
  /// Parts that the module can be split into across devices (tensor parallelism); 1: it can't.
  int tensor_ways = 1;
  /// Bytes that the parts add up among themselves in a forward and in a backward.
  double tensor_bytes = 0, tensor_gradient_bytes = 0;
  /// By the number of parts, as far as measured: what one part costs, without waiting for others.
  std::map<int, StepCosts> parts;

  StepCosts ms() const {
    return {forward.median, input_gradient.median, weight_gradient.median, update.median};
  }
  bool operator==(const ModuleProfile&) const = default;
};

/// A module's times and sizes, named as in files: the times with "_ms" there.
inline constexpr std::pair<const char*, Measured ModuleProfile::*> kTimes[] = {
    {"forward", &ModuleProfile::forward},
    {"input_gradient", &ModuleProfile::input_gradient},
    {"weight_gradient", &ModuleProfile::weight_gradient},
    {"update", &ModuleProfile::update}};
inline constexpr std::pair<const char*, double StepBytes::*> kSizes[] = {
    {"activation_bytes", &StepBytes::activation},
    {"gradient_bytes", &StepBytes::gradient},
    {"weight_bytes", &StepBytes::weight},
    {"state_bytes", &StepBytes::state},
    {"stash_bytes", &StepBytes::stash}};

/// How long handing over a message took, by its size.
struct HandOff {
  /// "cpu-cpu", "cuda:0-cuda:1"; kSums: adding up, by the bytes that each rank sends
  std::string between;
  std::vector<std::pair<double, double>> points;  ///< bytes, ms
  std::vector<double> spread;  ///< of each point's ms, where it was measured here; not in files
  bool operator==(const HandOff&) const = default;
};

inline constexpr const char* kSums = "sums over ranks";

struct Profile {
  std::string network;     ///< the user's name for it; the modules' names tell networks apart
  std::string source;      ///< where the figures come from
  std::string device;      ///< what they were measured on
  int frames = 1;          ///< that the figures are for: elsewhere one sample may be a minibatch
  double input_bytes = 0;  ///< of one sample, as the first module takes it
  std::vector<ModuleProfile> modules;
  /// Speed of a stage on 1, 2, ... cores, relative to one core.
  std::vector<double> thread_speedup = {1.0};
  std::vector<HandOff> hand_offs;
  double agree_ms = 0;  ///< of ranks that share modules, on a stage's update; see shared_by()

  bool operator==(const Profile&) const = default;
};

/// Throws ProfileError for the first figure that is negative, not finite or out of range, for no
/// modules, and for a first module that asks for an input gradient's time.
void check_profile(const Profile& profile);

/// The one of `hand_offs` with that `between` and at least one point; null: there is none.
const HandOff* hand_off_of(const Profile& profile, const std::string& between);

/// The straight line through `points` with the least squared error, with latency and time a byte
/// >= 0. One point: all of its time is latency. None: a link that costs nothing.
Link fit_link(const std::vector<std::pair<double, double>>& points);

}  // namespace millrace::engine::plan
