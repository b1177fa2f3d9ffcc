// The network, its pipeline, and how samples get there.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "engine/monitor/real_time.h"
#include "tools/app/feeds/frame_feed.h"
#include "tools/app/feeds/lockstep_feed.h"
#include "tools/app/feeds/replay_feed.h"
#include "tools/app/feeds/shared_feed.h"
#include "tools/app/intake.h"
#include "tools/app/overload_watch.h"
#include "tools/app/ranks/rank_team.h"
#include "tools/app/rate_watch.h"
#include "tools/app/request.h"

namespace millrace::app {

struct Learner {
  /// `team`: the other ranks; null: there are none. All outlive this.
  Learner(Request& request, Intake& intake, RankTeam* team);

  /// What the pipeline takes samples from: the frames' feed, or what stands before it.
  engine::Feed& samples();
  /// Whether ranks learn one network from feeds of their own, or share its modules.
  bool spread() const { return lockstep || shared_feed; }

  engine::TrainerOptions assembled;  ///< what the trainer is made of, without its weights
  engine::Trainer trainer;
  const std::string unfit;  ///< optimizer state that could not be restored; "": none
  std::unique_ptr<FrameFeed> feed;
  std::unique_ptr<ReplayFeed> replay;       ///< null: samples are trained on once
  std::unique_ptr<LockstepFeed> lockstep;   ///< null: no other pipeline learns this network
  std::unique_ptr<SharedFeed> shared_feed;  ///< null: no other rank has the same modules
  OverloadWatch overload;
  engine::RealTime real_time;
  std::unique_ptr<RateWatch> rate_watch;  ///< null: not yet learning
  std::atomic<double> rate{1.0};          ///< times optimizer.lr
};

}  // namespace millrace::app
