// The schedule language: who does what, in which order, for which sample. Needs no LibTorch.
#pragma once

#include <cstdint>  // sample numbers
#include <string>   // names
#include <vector>   // programs

namespace millrace::engine {

enum class Op : std::uint8_t {
  forward,   ///< receive the sample from upstream, run the modules, send on (last stage: the loss)
  backward,  ///< receive a gradient from downstream, backpropagate, send the input's gradient on
  update,    ///< apply the mean of the gradients since the last update
};

/// One action of a worker. Receiving and sending are implied by stage and operation, which fix
/// the neighbour; the sample fixes which message.
struct Action {
  Op op = Op::forward;
  int stage = 0;
  std::int64_t sample = 0;  ///< forward, backward: whose activations; update: the last one it covers
  /// backward: the gradient that downstream made in its own backward of this sample; equal to
  /// `sample` unless gradients meet the activations of a later sample (partime).
  std::int64_t gradient = 0;

  bool operator==(const Action&) const = default;
};

/// A worker's actions: `prologue` once, then `period` for ever, its samples moving on by `stride`
/// each time round. When the stream ends after M samples, actions on samples >= M are left out.
struct Program {
  std::vector<Action> prologue;
  std::vector<Action> period;
  std::int64_t stride = 1;

  /// The action at `index` = 0, 1, ... of the endless list.
  Action at(std::int64_t index) const;
  /// Whether every action from `index` on is on samples >= `samples`.
  bool over(std::int64_t index, std::int64_t samples) const;
};

/// A schedule as data: everything that reads it (engine, oracle, printer) shares one meaning.
struct Schedule {
  std::string name;
  int stages = 1;
  std::vector<Program> workers;
  /// Samples admitted and not yet finished by every stage. A sample uses slot (sample % slots()) of
  /// every buffer, so this bounds memory and keeps frames from piling up behind a slow stage.
  int in_flight = 1;
  /// Samples that make one update; a trailing group that the stream cannot fill is not applied.
  int group = 1;

  int slots() const { return in_flight; }
  /// Samples that are applied when the stream holds `samples`.
  std::int64_t applied(std::int64_t samples) const { return samples / group * group; }
};

/// What generators may need besides the number of stages.
struct ScheduleOptions {
  int stages = 1;
};

/// By stage, in the steady state: samples between the one whose loss made a gradient and the one it is
/// applied on.
std::vector<std::int64_t> gradient_ages(const Schedule& schedule);

/// Throws std::invalid_argument for an unknown name or stages < 1.
Schedule make_schedule(const std::string& name, const ScheduleOptions& options);

/// Every name make_schedule() takes.
const std::vector<std::string>& schedule_names();

}  // namespace millrace::engine
