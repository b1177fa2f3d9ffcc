#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/pipeline/gateway.h"
#include "engine/pipeline/launches.h"
#include "engine/pipeline/shared.h"
#include "engine/pipeline/worker_stage.h"

namespace millrace::engine {

/// Runs one worker's program, on that worker's thread.
class Worker {
 public:
  Worker(Shared& shared, int index);

  /// Returns when the stream is over and the worker's actions are done, or shared.stop is set.
  void run();

 private:
  /// False if the action is skipped because one of its waits was given up.
  bool perform(const Lowered& next);
  void perform_watched(const Lowered& next);  ///< with logging and hooks
  void work(const Lowered& next);
  void give(const Action& action, const Signal& signal);
  std::int64_t version_of(const Action& action);  ///< updates in the weights it used or updated
  void take_gradient(const Action& action, const Token& token);
  void update(const Action& action);

  // Waits: return false if given up.
  bool wait_for(const Action& action, const Signal& need, Token& token);
  bool receive(const Action& action, const Signal& need, Token& token);
  bool meet(const Action& action, const Signal& need);  ///< all replicas, before an update
  bool admit(const Action& action);
  bool await_target(const Action& action);
  /// Waits for a late target and takes the loss. `fate`: of the sample; changed without a target.
  bool compare(const Action& action, Fate& fate);
  /// Tries until `attempt` succeeds. `at`: the program's action whose token it waits for.
  template <class Attempt>
  bool await(const Action& action, const Attempt& attempt, std::int64_t at = -1);
  /// Sends `signal` at once, to another replica.
  void pass_on(const Signal& signal, Fate fate = Fate::trained, Alarm alarm = Alarm::none);

  // Launch groups, and reactions to their end.
  void end_group();
  void complete_finished();
  void drain();
  void complete(const Completion& completion);
  void predicted(const Action& action);  ///< shows the last stage's prediction
  void compared(const Action& action);   ///< shows the last stage's loss, and judges it
  void updated(const Completion& update);
  /// How long to wait before polling launched work again.
  std::chrono::microseconds patience() { return patience_->next(launches_.patience()); }

  bool over(std::int64_t sample) const { return shared_.over(sample); }
  bool over(const Action& action) const { return shared_.over(action); }
  WorkerStage& stage(const Action& action) { return by_stage_[std::size_t(action.stage)]; }
  SampleInfo& info(std::int64_t sample) { return shared_.in_flight(sample).info; }
  int slot(std::int64_t sample) const { return shared_.pool.slot_of(sample); }
  Alarm& verdict(std::int64_t sample) { return verdicts_[std::size_t(sample) % verdicts_.size()]; }

  Shared& shared_;
  const int index_;
  const Program& program_;
  const PipelineOptions& options_;
  Gateway& gateway_;
  const std::unique_ptr<Patience> patience_;
  ActionTrack* track_;                 ///< null: no log
  std::vector<WorkerStage> by_stage_;  ///< [stage]; only this worker's are filled
  std::vector<int> stages_;            ///< this worker's
  Launches launches_;
  double rate_ = 1.0;  ///< last passed on to the stages
  bool completing_ = false;
  std::int64_t at_ = 0;  ///< index of the current action in its program
  bool admits_ = false;
  std::vector<Alarm> verdicts_;  ///< [sample % size]: the guard's, on the latest samples
};

}  // namespace millrace::engine
