// The cost of a network by module, for plan and simulate: measured by `millrace profile`, or
// published. Milliseconds and bytes of one sample, unless said otherwise.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace millrace::engine::plan {

/// The parts of a step. The update applies one gradient, of any number of samples.
struct StepCosts {
  double forward = 0;
  double input_gradient = 0;   ///< 0 in the first module
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

/// What a module or a stage stores and sends to its neighbours.
struct StepBytes {
  double activation = 0;  ///< the output, sent downstream
  double gradient = 0;    ///< of the output, sent back by the stage downstream
  double weight = 0;      ///< one version; the gradient has the same size
  double state = 0;       ///< the optimizer's: momentum, moments
  double stash = 0;       ///< saved between a sample's forward and its backward
  bool operator==(const StepBytes&) const = default;
};

struct StageCosts {
  StepCosts ms;
  StepBytes bytes;  ///< activation, gradient: those of the last module

  StageCosts& operator+=(const StageCosts& next) {
    ms += next.ms;
    bytes = {next.bytes.activation, next.bytes.gradient, bytes.weight + next.bytes.weight,
             bytes.state + next.bytes.state, bytes.stash + next.bytes.stash};
    return *this;
  }
  bool operator==(const StageCosts&) const = default;
};

/// Between two devices. A message takes latency + bytes / bandwidth.
struct Link {
  double latency_ms = 0;
  double bytes_per_ms = 0;  ///< 1 GB/s = 1e6; 0: bytes cost nothing

  double ms(double bytes) const {
    return latency_ms + (bytes_per_ms > 0 ? bytes / bytes_per_ms : 0.0);
  }
  bool operator==(const Link&) const = default;
};

/// Ring all-reduce: each member sends its neighbour 2 (members - 1) pieces of bytes / members
/// (Patarasuk and Yuan, JPDC 2009). 0 for one member.
inline double all_reduce_ms(const Link& slowest, double bytes, int members) {
  if (members < 2) return 0;
  return 2.0 * (members - 1) * slowest.ms(bytes / members);
}

/// An unusable profile. The message is one line and names module and field.
struct ProfileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Measured {
  double median = 0;
  double spread = 0;  ///< median absolute deviation
  bool operator==(const Measured&) const = default;
};

/// Speeds on 1, 2, ... cores up to the first core that gains no more than the spread: a plan must
/// not count on more (a busy machine measured 0.07 on two).
std::vector<double> speeds_that_help(const std::vector<Measured>& speeds);

struct ModuleProfile {
  std::string name;
  Measured forward, input_gradient, weight_gradient, update;
  StepBytes bytes;
  /// Parts that the module can be split into across devices (tensor parallelism); 1: none.
  int tensor_ways = 1;
  /// Bytes that the parts all-reduce in a forward and in a backward.
  double tensor_bytes = 0, tensor_gradient_bytes = 0;
  /// [number of parts]: measured cost of one part, without waiting for the others
  std::map<int, StepCosts> parts;

  StepCosts ms() const {
    return {forward.median, input_gradient.median, weight_gradient.median, update.median};
  }
  bool operator==(const ModuleProfile&) const = default;
};

/// Named as in files, which add "_ms" to the times.
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

struct HandOff {
  /// "cpu-cpu", "cuda:0-cuda:1"; kSums: all-reduce, by the bytes that each rank sends
  std::string between;
  std::vector<std::pair<double, double>> points;  ///< bytes, ms
  std::vector<double> spread;  ///< of each point's ms, if measured by this process; not in files
  bool operator==(const HandOff&) const = default;
};

inline constexpr const char* kSums = "sums over ranks";

struct Profile {
  std::string network;  ///< the user's name; modules' names identify a network
  std::string source;
  std::string device;
  int frames = 1;  ///< in the sample that the figures are for, which may be a published profile's
                   ///< minibatch
  double input_bytes = 0;  ///< of one sample, at the first module
  std::vector<ModuleProfile> modules;
  /// [cores - 1]: speed of a stage relative to one core
  std::vector<double> thread_speedup = {1.0};
  std::vector<HandOff> hand_offs;
  double agree_ms = 0;  ///< per update of a stage, of ranks that share modules; see shared_by()

  bool operator==(const Profile&) const = default;
};

/// Throws ProfileError if a figure is negative, not finite or out of range, there are no modules,
/// or the first module has an input gradient's time.
void check_profile(const Profile& profile);

/// Reads PipeDream's `graph.txt` (its repository has a dozen): a line per layer, then one per edge,
///
///     node7 -- LSTM(2048, 1024) -- forward_compute_time=3.190, backward_compute_time=5.348,
///         activation_size=[6291456.0; 131072.0], parameter_size=50364416.000
///     <tab>node6 -- node7
///
/// (the first on one line; milliseconds and bytes of a minibatch of `frames`). Orders the layers in
/// a chain: each after its inputs, the lowest number first, which is the order of the forward.
/// Every cut of the chain splits the graph with all edges in one direction; an output that later
/// layers still read crosses it once. For a chain with skips these are PipeDream's own cuts (its
/// antichains); for parallel branches PipeDream tries more.
///
/// Input layers are dropped, as in PipeDream: stage 0 receives the data. The format has one figure
/// for the backward, which is halved between input and weights if there are weights; no updates;
/// and no stash: the output is taken for it. `name`: of the file, for errors. Throws ProfileError
/// with line and field.
Profile profile_from_graph(const std::string& text, const std::string& name, int frames);

/// Whether a text looks like PipeDream's format rather than JSON.
bool is_graph(const std::string& text);

/// Least-squares line through `points`, with latency and time per byte >= 0. One point: all of its
/// time is latency. None: a link that costs nothing.
Link fit_link(const std::vector<std::pair<double, double>>& points);

}  // namespace millrace::engine::plan
