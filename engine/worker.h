// One worker: walks its program, action by action.
#pragma once

#include <cstdint>  // sample numbers
#include <vector>   // stages

#include "engine/pipeline.h"

namespace millrace::engine {

/// Lives on its worker's thread.
class Worker {
 public:
  Worker(Shared& shared, int index, const PipelineOptions& options);

  /// Returns when the stream is over and all of this worker's actions are done, or shared.stop is
  /// set.
  void run();

 private:
  // Each does its action, or leaves it out when the wait for what it needs was given up.
  void forward(const Action& action);
  void recompute(const Action& action);
  void backward(const Action& action);
  void update(const Action& action);

  bool admit(const Action& action);  ///< stage 0: takes a sample from the feed
  bool receive_activations(const Action& action);
  bool receive_gradient(const Action& action);
  bool receive(int stage, TokenQueue& queue, std::int64_t sample, std::int64_t label, Token& token);
  void predicted(const Action& action);  ///< last stage: shows what it made
  void end_sample(const Action& action);
  void follow_rate();
  void apply(int stage);  ///< the update, or what the guard makes of it
  bool end_of_stream(std::int64_t samples);

  // Among the replicas of a stage; true at once where it has one worker.
  bool wait_for_turn(const Action& action);  ///< until the sample before has had its turn
  void pass_turn(const Action& action);
  bool wait_for_gradients(const Action& action);  ///< of all replicas

  /// Whether to wait no longer for `sample`: a worker failed, or the stream ended before it.
  bool over(std::int64_t sample) const {
    return shared_.stop.load(std::memory_order_relaxed) ||
           sample >= shared_.applied.load(std::memory_order_relaxed);
  }
  std::int64_t gradient_age(int stage) const;  ///< of the gradient last received
  capture::Step& step(int stage) { return *shared_.steps[units_[stage]]; }
  StageMeter& meter(int stage) { return shared_.monitor.unit(units_[stage]); }
  void lap(int stage, StageMeter::Part part) { meter(stage).lap(part, Clock::now()); }
  bool last(int stage) const { return stage + 1 == shared_.schedule.stages; }
  int slot(std::int64_t sample) const { return shared_.pool.slot_of(sample); }

  Shared& shared_;
  int index_;
  const Program& program_;
  const PipelineOptions& options_;
  double rate_ = 1.0;       ///< last passed on to the stages
  std::vector<int> units_;  ///< by stage: this worker's replica of it
  std::vector<std::int64_t>
      origin_;  ///< by stage: the sample whose loss made the gradient last received
  std::vector<Alarm> verdicts_;               ///< by slot: on the last stage's losses
  std::vector<Alarm> alarms_;                 ///< by stage: of the gradient last received
  std::vector<Alarm> pending_;                ///< by stage: the worst since its last update
  std::vector<std::int64_t> newest_;          ///< by stage: the sample last forwarded
  std::vector<std::int64_t> ages_;            ///< by stage: as the schedule's text has it
  std::vector<std::int64_t> first_backward_;  ///< by stage
};

}  // namespace millrace::engine
