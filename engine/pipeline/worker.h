// One worker: goes through its program, action by action.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/pipeline/edge.h"
#include "engine/pipeline/worker_state.h"

namespace millrace::engine {

/// Lives on its worker's thread.
class Worker {
 public:
  Worker(Shared& shared, int index, const PipelineOptions& options);

  /// Returns when the stream is over and all of this worker's actions are done, or shared.stop is
  /// set.
  void run();

 private:
  using Stage = StageOfWorker;

  /// False if the action is left out, since the wait for what it needs was given up.
  bool perform(const Lowered& next);
  void perform_watched(const Lowered& next);  ///< the same for whoever wants to know of it
  void work(const Lowered& next);
  void give(const Action& action, const Signal& signal);
  std::int64_t version_of(const Action& action);  ///< updates in the weights it met or made
  void update(const Action& action);
  void follow_rate();
  void end_sample(const Action& action);

  // Waits: false where they were given up.
  bool wait_for(const Action& action, const Signal& need, Token& token);
  bool receive(const Action& action, const Signal& need, Token& token);
  bool meet(const Action& action, const Signal& need);  ///< all replicas, at an update
  bool admit(const Action& action);                     ///< the next sample
  bool await_target(const Action& action);
  /// Tries until `attempt` succeeds. `at`: the action of the program whose token it waits for.
  template <class Attempt>
  bool await(const Action& action, const Attempt& attempt, std::int64_t at = -1);
  /// Waits for a target that comes late, and takes the loss. `told`: whether it came.
  bool compare(const Action& action, bool& told);
  void take_gradient(const Action& action, const Token& token, bool told);
  /// At once, to another replica.
  void pass_on(const Signal& signal, bool learns = true, Alarm alarm = Alarm::none);

  // The end of a launch group, and what is known when its work is over.
  void end_group();
  void complete_finished();
  void drain();
  bool over(const Completion& completion);
  void complete(const Completion& completion);
  void predicted(const Action& action);  ///< shows what the last stage made
  void compared(const Action& action);   ///< and what became of it
  float loss_of(const Action& action);   ///< NaN: it has no target
  void updated(const Completion& update);
  /// Of a wait, until the worker looks at what it has launched.
  std::chrono::microseconds patience();

  /// Whether to wait no longer for `sample`: a worker failed, or the stream ended before it.
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
  ActionTrack* track_;           ///< null: nobody wants to know when what was done
  std::vector<Stage> by_stage_;  ///< those it acts on are filled
  std::vector<int> stages_;      ///< that it acts on
  double rate_ = 1.0;            ///< last passed on to the stages
  Outbox outbox_;                ///< what others hear of when the launch group ends
  CompletionQueue completions_;
  bool completing_ = false;
  std::int64_t at_ = 0;          ///< the action, in its program
  bool admits_ = false;          ///< it has admitted a sample
  Clock::duration showing_{};    ///< from launch to prediction, lately
  std::vector<Alarm> verdicts_;  ///< of the guard: sample n's at n mod size
};

}  // namespace millrace::engine
