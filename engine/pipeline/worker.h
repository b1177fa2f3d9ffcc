#pragma once

#include <cstdint>
#include <vector>

#include "engine/pipeline/edge.h"
#include "engine/pipeline/worker_state.h"

namespace millrace::engine {

/// Runs one worker's program, on that worker's thread.
class Worker {
 public:
  Worker(Shared& shared, int index, const PipelineOptions& options);

  /// Returns when the stream is over and its actions are done, or shared.stop is set.
  void run();

 private:
  using Stage = StageOfWorker;

  /// False if the action is skipped because a wait of it was given up.
  bool perform(const Lowered& next);
  void perform_watched(const Lowered& next);  ///< with logging and hooks
  void work(const Lowered& next);
  void give(const Action& action, const Signal& signal);
  std::int64_t version_of(const Action& action);  ///< updates in the weights it used or made
  void update(const Action& action);
  void follow_rate();

  // Waits. They return false if given up.
  bool wait_for(const Action& action, const Signal& need, Token& token);
  bool receive(const Action& action, const Signal& need, Token& token);
  bool meet(const Action& action, const Signal& need);  ///< all replicas, before an update
  bool admit(const Action& action);
  bool await_target(const Action& action);
  /// Tries until `attempt` succeeds. `at`: the program's action whose token it waits for.
  template <class Attempt>
  bool await(const Action& action, const Attempt& attempt, std::int64_t at = -1);
  /// Waits for a late target and takes the loss. `told`: whether it came.
  bool compare(const Action& action, bool& told);
  void take_gradient(const Action& action, const Token& token, bool told);
  /// At once, to another replica.
  void pass_on(const Signal& signal, bool learns = true, Alarm alarm = Alarm::none);

  // The end of a launch group, and completions of what was launched.
  void end_group();
  void complete_finished();
  void drain();
  bool over(const Completion& completion);
  void complete(const Completion& completion);
  void predicted(const Action& action);  ///< shows the last stage's prediction
  void compared(const Action& action);   ///< shows its loss, and judges it
  void updated(const Completion& update);
  /// How long to wait before looking at launched work again.
  std::chrono::microseconds patience();

  bool over(std::int64_t sample) const { return shared_.over(sample); }
  bool over(const Action& action) const { return shared_.over(action); }
  Stage& stage(const Action& action) { return by_stage_[std::size_t(action.stage)]; }
  void lap(Stage& stage, StageMeter::Part part, Clock::time_point now = Clock::now()) {
    stage.lap(part, track_, now);
  }
  SampleInfo& info(std::int64_t sample) { return shared_.in_flight(sample).info; }
  int slot(std::int64_t sample) const { return shared_.pool.slot_of(sample); }

  Shared& shared_;
  const int index_;
  const Program& program_;
  const PipelineOptions& options_;
  Edge& edge_;
  const std::unique_ptr<Patience> patience_;
  ActionTrack* track_;           ///< null: no log
  std::vector<Stage> by_stage_;  ///< only its own are filled
  std::vector<int> stages_;      ///< its own
  double rate_ = 1.0;            ///< last passed on to the stages
  Outbox outbox_;                ///< tokens to send when the launch group ends
  CompletionQueue completions_;
  bool completing_ = false;
  std::int64_t at_ = 0;  ///< index of the current action in its program
  bool admits_ = false;
  Clock::duration showing_{};    ///< from launch to prediction, running mean
  std::vector<Alarm> verdicts_;  ///< of the guard: sample n's at n mod size
};

}  // namespace millrace::engine
