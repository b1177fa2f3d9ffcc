// One worker: walks its program, action by action.
#pragma once

#include <cstdint>  // sample numbers
#include <vector>   // stages

#include "engine/pipeline/notes.h"
#include "engine/pipeline/pipeline.h"

namespace millrace::engine {

/// Lives on its worker's thread.
class Worker {
 public:
  Worker(Shared& shared, int index, const PipelineOptions& options);

  /// Returns when the stream is over and all of this worker's actions are done, or shared.stop is
  /// set.
  void run();

 private:
  // Each does its action; false if it is left out, since the wait for what it needs was given up.
  bool perform(const Action& action);
  bool forward(const Action& action);
  bool recompute(const Action& action);
  bool backward(const Action& action);
  bool update(const Action& action);

  void perform_watched(const Action& action);     ///< the same for whoever wants to know of it
  std::int64_t version_of(const Action& action);  ///< updates in the weights it met or made

  bool admit(const Action& action);      ///< stage 0: takes a sample from the feed
  bool full(std::int64_t sample) const;  ///< whether it was asked to admit no more
  bool choose(std::int64_t sample);      ///< whether a new sample is learned from
  bool receive_activations(const Action& action);
  bool receive_gradient(const Action& action);
  bool receive(int stage, TokenQueue& queue, std::int64_t sample, std::int64_t label, Token& token);
  template <class Attempt>
  bool await(std::int64_t sample, const Attempt& attempt);  ///< false: given up
  void predicted(const Action& action);                     ///< last stage: shows what it made
  void end_sample(const Action& action);
  void follow_rate();
  /// The update, or what the guard makes of it, or of `learned` samples there are none. Whether it
  /// was asked of the step.
  bool apply(int stage, bool learned);

  // A turn's end, and what can be told when its work is over.
  void end_turn();
  void settle();  ///< tells of what is over by now
  void tell(const Note& note);
  void updated(const Note& note);
  void timed(const Note& note);
  void drain();
  bool can_be_told(const Note& note);
  std::chrono::microseconds patience();  ///< of a wait, until it looks at what is launched

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
  void lap(int stage, StageMeter::Part part) {
    const Clock::time_point now = Clock::now();
    if (part == StageMeter::Part::waiting && track_) track_->waited(meter(stage).last(), now);
    if (!step(stage).defers()) return meter(stage).lap(part, now);
    const std::int64_t passed = meter(stage).pass(now);
    if (part != StageMeter::Part::waiting) host_ns_[stage] += passed;
  }
  bool last(int stage) const { return stage + 1 == shared_.schedule.stages; }
  const SampleInfo& info(std::int64_t sample) const { return shared_.infos[slot(sample)]; }
  int slot(std::int64_t sample) const { return shared_.pool.slot_of(sample); }

  Shared& shared_;
  int index_;
  const Program& program_;
  const PipelineOptions& options_;
  ActionTrack* track_;      ///< null: nobody wants to know when what was done
  double rate_ = 1.0;       ///< last passed on to the stages
  std::vector<int> units_;  ///< by stage: this worker's replica of it
  std::vector<std::int64_t>
      origin_;               ///< by stage: the sample whose loss made the gradient last received
  std::vector<int> stages_;  ///< that it acts on
  Outbox outbox_;            ///< what others hear of when the turn ends
  bool telling_ = false;
  Notes notes_;                          ///< what is told when the work is over
  Clock::duration showing_{};            ///< from launch to prediction, lately
  std::vector<Alarm> verdicts_;          ///< of the guard: sample n's at n mod size
  std::vector<std::int64_t> host_ns_;    ///< by stage: of this turn, where the step defers
  std::vector<int> forwards_;            ///< by stage: in this turn
  std::vector<std::int64_t> untold_ns_;  ///< by stage: of turns without a forward
  std::vector<std::int64_t> versions_;   ///< by stage: of its weights, made so far
  std::vector<std::int64_t> tries_;      ///< by stage: updates asked of its step
  std::vector<std::int64_t> skipped_;    ///< by stage: of them, known to be left out
  std::vector<Alarm> alarms_;            ///< by stage: of the gradient last received
  std::vector<Alarm> pending_;           ///< by stage: the worst since its last update
  std::vector<char> learns_;             ///< by stage: whether the gradient last received is one
  std::vector<char> learned_;            ///< by stage: whether there was one since its last update
  std::vector<std::int64_t> newest_;     ///< by stage: the sample last forwarded
  std::vector<std::int64_t> ages_;       ///< by stage: as the schedule's text has it
  std::vector<std::int64_t> first_backward_;  ///< by stage
};

}  // namespace millrace::engine
