#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "engine/monitor/real_time.h"
#include "tools/app/classes/class_memory.h"
#include "tools/app/feeds/frame_feed.h"
#include "tools/app/feeds/replay_feed.h"
#include "tools/app/intake.h"
#include "tools/app/overload_watch.h"
#include "tools/app/ranks/rank_feeds.h"
#include "tools/app/ranks/rank_team.h"
#include "tools/app/request.h"
#include "tools/app/watches.h"

namespace millrace::app {

/// The feed for the config's task. `intake` and `trainer` outlive it.
std::unique_ptr<FrameFeed> make_feed(const Config& config, Intake& intake,
                                     const engine::Trainer& trainer);

struct Learner {
  /// `team`: the other ranks, or null. `stopping`: Progress::stopping. All arguments outlive this.
  Learner(Request& request, Intake& intake, RankTeam* team, const std::atomic<bool>& stopping);

  /// All frames so far. Any thread.
  engine::FrameCounts frames(const Intake& intake) {
    engine::FrameCounts frames = intake.frames(trainer.monitor().tally().counts());
    frames.rejected += feed->unfit();
    return frames;
  }
  /// The pipeline's source of samples: `feed`, or the feed that wraps it.
  engine::Feed& samples();
  /// Forgets the classes that users asked to forget until `seconds` of the stream. On the thread
  /// that shows predictions, or once it has ended.
  void forget(double seconds);
  /// Passes the weights learned from labels to the last stage, if that is due, or if `all`,
  /// anything new. Call where Trainer::set_fixed() may be called.
  void recall(bool all);
  /// Trainer::checkpoint() of `stage`, or of all, with the memory of labels.
  stages::StateDict checkpoint(std::optional<int> stage = {}) const;

  const std::int64_t libraries_bytes;  ///< resident memory before there was a network
  engine::TrainerOptions assembled;    ///< without the weights
  engine::Trainer trainer;
  const Likeness known;                          ///< classes that the weights knew at the start
  std::unique_ptr<ClassMemory> memory;           ///< null: replay.kind is not "ridge"
  const std::shared_ptr<io::LiveLabels> labels;  ///< from users during the run, or null
  const std::string unfit;  ///< optimizer state that was not restored; "": none
  std::shared_ptr<const io::StreamHealth> targets;  ///< of task.stream; null: none
  std::unique_ptr<FrameFeed> feed;
  std::unique_ptr<ReplayFeed> replay;
  std::unique_ptr<LockstepFeed> lockstep;   ///< null: no other pipeline trains this network
  std::unique_ptr<SharedFeed> shared_feed;  ///< null: no other rank has the same modules
  OverloadWatch overload;
  engine::RealTime real_time;
  RateWatch rate_watch;
  std::atomic<double> rate{1.0};  ///< factor on first_rate()

  double first_rate() const {
    return stages::first_rate(assembled.optimizer, assembled.correction);
  }
};

}  // namespace millrace::app
