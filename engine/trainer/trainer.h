// A network cut into stages, placed on devices and trained from a feed: the engine as one object.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "capture/buffers.h"
#include "capture/stage_step.h"
#include "engine/monitor/monitor.h"
#include "engine/pipeline/feed.h"
#include "engine/pipeline/pipeline.h"
#include "engine/schedule/schedule.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

class Exchange;
class RankWires;
class TensorFreight;

/// Bytes that one worker of a stage holds.
struct StageMemory {
  std::int64_t weights = 0;      ///< the newest version
  std::int64_t stashes = 0;      ///< older versions
  std::int64_t optimizer = 0;    ///< its state
  std::int64_t gradients = 0;    ///< sums, until the update
  std::int64_t activations = 0;  ///< peak of what is kept between forward and backward
  std::int64_t total() const { return weights + stashes + optimizer + gradients + activations; }
};

/// Channels of a stage that a ReLU follows, and how many of them it has silenced.
struct DeadUnits {
  int dead = 0, units = 0;
};

struct StageFacts {
  StageMemory memory;
  DeadUnits dead_units;
  bool recorded = false;          ///< its step
  std::vector<std::string> left;  ///< left_to_libtorch() of its step program
};

/// Owns stages, buffers, schedule and monitor. Not thread-safe, but monitor() may be read and cut()
/// called while run() or recut() run.
class Trainer {
 public:
  /// Throws std::invalid_argument for options that do not fit together, with what is wrong;
  /// std::runtime_error for a device that can't be split among its stages, or that fails.
  explicit Trainer(TrainerOptions options);
  ~Trainer();

  /// The sample that a slot holds, as feeds and observers get it.
  Sample& in_slot(int slot) { return *sample_in_[std::size_t(slot)]; }

  /// Records what is to be recorded, so that run() need not begin with that; once, and once more
  /// after each recut().
  void prepare();

  /// Trains until the feed ends, `limit` samples (0: no limit) were admitted to learn from, or it
  /// is told to drain. Once, and once more after each recut(), for what follows in the stream.
  /// Throws std::runtime_error where a device fails; its work is over by then.
  Outcome run(Feed& feed, Observer* observer, PipelineOptions options = {});

  /// Cuts the network elsewhere, with the same weights and optimizer state; what was sent between
  /// stages, and older versions of weights, are gone, as after a checkpoint. Throws
  /// std::invalid_argument for a cut that cannot be. When run() is not running.
  void recut(const std::vector<int>& cut);
  /// Whether recut() would take it. Any thread.
  bool may_cut_at(const std::vector<int>& cut) const;

  // Spread over ranks, each has its own stages alone. run() of rank 0 has the feed and the
  // observer, and fetches what the others have learned; recut() has all of them cut anew.

  /// On rank 0, before the first run(): what the stages of `rank` begin with, of checkpoint().
  stages::StateDict share_of(int rank) const;
  /// On rank 0, after the last run(): the others need not wait for a recut() any longer.
  void dismiss_ranks();
  /// On another rank, after run(): waits for rank 0. True: it has cut anew, and runs again; false:
  /// it was the last run.
  bool follow();
  /// Whether state() and checkpoint() are whole: not after a rank was lost.
  bool is_whole() const { return whole_; }
  const std::vector<int>& rank_of_worker() const { return options_.rank_of_worker; }

  /// All weights, named as the uncut network names them. When run() is not running. On a rank but
  /// the first: of its stages.
  stages::StateDict state() const;

  /// The same with the optimizer's state, to go on from later. The share of one stage here may be
  /// taken by its worker from PipelineOptions::after_sample.
  stages::StateDict checkpoint() const;
  stages::StateDict checkpoint(int stage) const;

  /// By stage, of its first replica. When run() is not running.
  std::vector<StageFacts> facts() const;

  /// By stage, of its first replica; of a stage on a GPU they are not counted. Any thread.
  std::vector<DeadUnits> dead_units() const;

  /// Numbers in a target, and in a prediction.
  std::size_t target_elements() const { return std::size_t(samples_.target[0].numel()); }

  /// Of a target, and of a prediction.
  const stages::ImageShape& output_shape() const {
    return options_.network->shape(options_.network->size() - 1);
  }

  const Schedule& schedule() const { return schedule_; }
  /// Of one of the `context()` frames in a sample.
  stages::ImageShape frame() const { return options_.frame(); }
  int context() const { return options_.context; }
  std::vector<int> cut() const;
  const std::vector<double>& module_ms() const { return options_.module_ms; }
  const std::vector<int>& threads() const { return options_.threads; }
  const std::vector<Device>& devices() const { return devices_; }
  Monitor& monitor() { return monitor_; }
  const LossGuard& guard() const { return guard_; }
  /// As this process's first stage has it. Any thread.
  capture::RateInForce rate() const;
  /// Whether steps are replayed from recordings, and why not though they were to be ("": nothing
  /// failed).
  bool recorded() const { return records_; }
  const std::string& recording_error() const { return recording_error_; }
  const stages::CorrectionSpec& correction() const { return options_.correction; }
  const stages::OptimizerSpec& optimizer() const { return options_.optimizer; }
  const stages::LossSpec& loss() const { return options_.loss; }
  bool late_targets() const { return options_.late_targets; }
  std::int64_t trained() { return monitor_.tally().counts().trained; }

 private:
  void build();  ///< stages and what lies between them
  /// Does `work`, which prepares recorded steps. Where they may, steps run eagerly if it fails.
  void recording(const std::function<void()>& work);
  /// Says how what crosses the cut after `stage` is handed over.
  /// Null: the neighbour is elsewhere.
  void join(int stage, const capture::Backend* above, const capture::Backend* below);
  std::unique_ptr<capture::StageStep> make_step(stages::Stage stage, int index, int replica_id,
                                                std::unique_ptr<capture::Backend> backend);
  void recut(const std::vector<int>& cut, stages::StateDict weights, double backed_off);
  double backed_off() const;
  void check_ranks();
  void gather();  ///< every rank's weights to rank 0
  /// The options with another cut.
  TrainerOptions cut_at(const std::vector<int>& cut) const;
  bool here(int replica_id) const;  ///< in this process
  /// A stage's first replica here; the others have the same weights. Null: it is elsewhere.
  capture::StageStep* step_of(int stage) const;
  std::vector<capture::Step*> steps() const;
  StageFacts facts(int stage) const;
  DeadUnits dead_units(int stage) const;
  std::string told_facts() const;          ///< of stages here, while run() is running
  void take_facts(std::string_view told);  ///< on rank 0

  TrainerOptions options_;
  std::vector<Device> devices_;   ///< as asked for; in options_ those of other ranks are cores
  mutable std::mutex cut_mutex_;  ///< what recut() changes in options_, and steps_
  Schedule schedule_;
  bool records_;                 ///< some of the steps
  std::string recording_error_;  ///< "": there was none
  Monitor monitor_;
  LossGuard guard_;
  SceneWatch scene_;
  capture::SampleBuffers samples_;
  std::vector<std::unique_ptr<Sample>> sample_in_;  ///< by slot
  std::vector<std::unique_ptr<capture::Boundary>> boundaries_;
  /// By Schedule::replica_id(); null: another rank's.
  std::vector<std::unique_ptr<capture::StageStep>> steps_;
  // Null: not spread over ranks.
  std::unique_ptr<TensorFreight> freight_;
  std::unique_ptr<RankWires> wires_;
  // On rank 0, of other ranks' stages: what they had learned when run() ended, as checkpoint(), and
  // the rest, as they last told.
  std::map<int, stages::StateDict> learned_elsewhere_;
  std::map<int, StageFacts> facts_elsewhere_;
  int runs_ = 0;
  bool whole_ = true;
  std::int64_t admitted_ = 0;  ///< by earlier runs
  bool prepared_ = false;
};

}  // namespace millrace::engine
