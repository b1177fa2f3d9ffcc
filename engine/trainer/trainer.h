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
#include "engine/schedule/verifier.h"
#include "engine/trainer/operations.h"
#include "engine/trainer/trainer_options.h"

namespace millrace::engine {

class Exchange;
class RankWires;
class TensorFreight;

/// Channels of a stage that a ReLU follows, and how many of them it has silenced.
struct DeadUnits {
  int dead = 0, units = 0;
};

struct StageFacts {
  StageMemory memory;
  bool recorded = false;
  std::vector<std::string> left;  ///< left_to_libtorch() of its step program
};

struct Recording {
  bool on = false;      ///< steps are replayed from recordings
  std::string error{};  ///< why they are not, if they should be; "": no failure
};

/// What may change while a trainer runs.
struct TrainerNow {
  std::vector<int> cut;
  Recording recording;
  capture::RateInForce rate{};          ///< of this process's first stage
  std::vector<DeadUnits> dead_units{};  ///< of each stage's first replica; not counted on a GPU
};

/// A network cut into stages, placed on devices and trained from a feed: the engine as one object.
/// Not thread-safe, but now() may be called, and monitor() read, while run() or recut() run.
class Trainer {
 public:
  /// Throws std::invalid_argument, with what is wrong, for inconsistent options; std::runtime_error
  /// for a device that cannot be split among its stages, or that fails.
  explicit Trainer(TrainerOptions options);
  ~Trainer();

  /// The sample in a slot, as feeds and observers get it.
  Sample& in_slot(int slot) { return *sample_in_[std::size_t(slot)]; }

  /// Does run()'s recording ahead; once, and once more after each recut().
  void prepare();

  /// Trains until the feed ends, `limit` samples to learn from (0: no limit) were admitted, or a
  /// drain is requested. Once, and once more after each recut(), for the rest of the stream. Throws
  /// std::runtime_error if a device fails, after its work has ended.
  Outcome run(Feed& feed, Observer* observer, PipelineOptions options = {});

  /// Moves the cut. Weights and optimizer state stay; messages between stages and older weight
  /// versions are lost, as with a checkpoint. Throws as require_cut() and
  /// require_correction(). Not during run().
  void recut(const std::vector<int>& cut);

  // With ranks, each trains its own stages only. run() on rank 0 has the feed and the observer, and
  // fetches what the others have learned; recut() recuts all of them.

  /// On rank 0, after the last run(): the others stop waiting for a recut().
  void dismiss_ranks();
  /// On another rank, after run(): waits for rank 0. True: recut, run again; false: no more runs.
  bool follow();
  /// Whether state() and checkpoint() are complete: not after a rank was lost.
  bool is_whole() const { return whole_; }

  /// All weights, named as in the uncut network; not on rank 0: local ones. Not during run().
  stages::StateDict state() const;

  /// All weights with the optimizer's state, to resume from. A local stage's part may be taken by
  /// its worker in PipelineOptions::after_sample.
  stages::StateDict checkpoint() const;
  stages::StateDict checkpoint(int stage) const;

  /// Overwrites fixed weights of a local stage for its next forward. Thread: see checkpoint(stage).
  void set_fixed(int stage, const stages::StateDict& weights);

  /// Facts of each stage's first replica. Not during run().
  std::vector<StageFacts> facts() const;

  /// Any thread.
  TrainerNow now() const;

  /// The options with devices (those of other ranks: cores), threads and module times filled in.
  /// Any thread, except for `cut` and `weights`.
  const TrainerOptions& options() const { return options_; }
  const Schedule& schedule() const { return schedule_; }
  /// The device of each replica by Schedule::replica_id(), on all ranks.
  const std::vector<Device>& devices() const { return devices_; }
  Monitor& monitor() { return monitor_; }
  const LossGuard& guard() const { return guard_; }

 private:
  void build();  ///< stages and what lies between them
  /// Runs `work`, which builds or records steps. If it can't record, steps are eager where allowed.
  void with_eager_fallback(const std::function<void()>& work);
  /// Sets how data crosses the cut after `stage`. Null: the neighbour is on another rank.
  void join(int stage, const capture::Backend* above, const capture::Backend* below);
  void recut(const std::vector<int>& cut, stages::StateDict weights, double backed_off);
  void check_ranks();
  void gather();  ///< every rank's weights to rank 0
  bool here(int replica_id) const;
  /// A stage's first local replica; the others have the same weights. Null: there is none.
  capture::StageStep* step_of(int stage) const;
  stages::Stage& idle_stage(int stage) const;  ///< a local stage, once all earlier calls have ended
  capture::StageStep* first_here() const;      ///< null only while the stages cannot be built
  std::vector<capture::Step*> steps() const;
  StageFacts facts(int stage) const;
  DeadUnits dead_units(int stage) const;
  std::string dead_here() const;  ///< dead_units() of local stages, for rank 0
  void take_dead(std::string_view counts);

  TrainerOptions options_;
  std::vector<Device> devices_;   ///< as requested; in options_ those of other ranks are cores
  mutable std::mutex cut_mutex_;  ///< steps_, recording_, and what recut() changes in options_
  Schedule schedule_;
  TensorSets sets_;
  Recording recording_;
  Monitor monitor_;
  LossGuard guard_;
  capture::SampleBuffers samples_;
  std::vector<std::unique_ptr<Sample>> sample_in_;  ///< by slot
  std::vector<std::unique_ptr<capture::Boundary>> boundaries_;
  /// The steps by Schedule::replica_id(); null: another rank's.
  std::vector<std::unique_ptr<capture::StageStep>> steps_;
  // Null without ranks.
  std::unique_ptr<TensorFreight> freight_;
  std::unique_ptr<RankWires> wires_;
  // On rank 0, other ranks' stages: checkpoint() and facts() after run(), the latest dead_units().
  std::map<int, stages::StateDict> learned_elsewhere_;
  std::vector<StageFacts> facts_elsewhere_;  ///< by stage
  std::vector<DeadUnits> dead_elsewhere_;    ///< by stage
  int runs_ = 0;
  bool whole_ = true;
  std::int64_t admitted_ = 0;  ///< by earlier runs
  bool prepared_ = false;
};

/// On rank 0, before the first run(): the part of checkpoint() with which `rank`'s stages begin.
stages::StateDict share_of(const Trainer& trainer, int rank);

}  // namespace millrace::engine
