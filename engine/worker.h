// One worker: walks its program, action by action.
#pragma once

#include <cstdint>  // sample numbers
#include <limits>   // no end known
#include <vector>   // stages

#include "engine/pipeline.h"

namespace millrace::engine {

/// Stages that `program` acts on, ascending.
std::vector<int> stages_of(const Program& program);

/// Lives on its worker's thread.
class Worker {
 public:
  Worker(Shared& shared, int index, const PipelineOptions& options);

  /// Returns when the stream is over and all of this worker's actions are done, or shared.stop is set.
  void run();

 private:
  static constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

  bool forward(const Action& action);
  bool backward(const Action& action);
  void update(const Action& action);

  bool admit(const Action& action);          ///< stage 0: takes a sample from the feed
  bool receive_activations(const Action& action);
  bool receive_gradient(const Action& action);
  void end_of_stream(int stage, std::int64_t samples);
  void lap(int stage, StageMeter::Part part) { shared_.monitor.stage(stage).lap(part, Clock::now()); }
  bool last(int stage) const { return stage + 1 == shared_.schedule.stages; }
  int slot(std::int64_t sample) const { return shared_.pool.slot_of(sample); }

  Shared& shared_;
  int index_;
  const Program& program_;
  const PipelineOptions& options_;
  std::int64_t samples_ = kUnknown;  ///< what the stream held, once this worker knows
  std::int64_t applied_ = kUnknown;  ///< how many of them are applied
  std::vector<std::int64_t> origin_; ///< by stage: the sample whose loss made the gradient last received
  std::vector<std::int64_t> retires_at_forward_;  ///< samples of the prologue that never go backward, by stage
};

}  // namespace millrace::engine
