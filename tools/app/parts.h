// What a run is made of: the blocks in the order that a frame meets them, then what watches them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/trainer/checkpointer.h"
#include "io/files/whole_file.h"
#include "io/queue/reader.h"
#include "io/source/labels.h"
#include "io/source/live_labels.h"
#include "io/source/stream_health.h"
#include "tools/app/outputs/alert_watch.h"
#include "tools/app/callback.h"
#include "tools/app/checkpoint_files.h"
#include "tools/app/outputs/events.h"
#include "tools/app/feeds/frame_feed.h"
#include "tools/app/outputs/frame_log.h"
#include "tools/app/outputs/live_view.h"
#include "tools/app/feeds/lockstep_feed.h"
#include "tools/app/observers.h"
#include "tools/app/overload_watch.h"
#include "tools/app/ranks/rank_team.h"
#include "tools/app/rate_watch.h"
#include "tools/app/reload.h"
#include "tools/app/feeds/replay_feed.h"
#include "tools/app/resume.h"
#include "tools/app/feeds/shared_feed.h"
#include "tools/app/outputs/status_line.h"
#include "tools/app/feeds/stdin_labels.h"
#include "tools/app/outputs/trace_counters.h"
#include "tools/app/outputs/video_out.h"
#include "tools/app/outputs/write_watch.h"

namespace millrace::app {

struct CheckedConfig;

/// Constructed, it is ready to learn. Thread-bound but for `stopping`.
struct RunParts {
  /// Checks config and options, then opens the source. Throws as Run.
  RunParts(const Config& given, RunOptions options);

  stages::ImageShape shape() const {  ///< of a sample
    return {config.source.channels, resizer.height(), resizer.width()};
  }
  bool paused() const { return page && page->paused(); }
  void tell(const std::string& line) {
    if (on_event) on_event(line);
  }
  io::ReaderOptions reader_options(std::int64_t limit) const;
  engine::PipelineOptions pipeline_options(std::int64_t limit);
  engine::Feed& samples() {
    if (shared_feed) return *shared_feed;
    if (lockstep) return *lockstep;
    return replay ? static_cast<engine::Feed&>(*replay) : *feed;
  }
  /// What the trainer's `state`, with what other ranks have, is of the whole network.
  stages::StateDict of_all_ranks(stages::StateDict state) const {
    return team ? team->whole(std::move(state)) : state;
  }

  const Config config;
  const Resumed resumed;  ///< the checkpoint that it goes on from
  const RunOptions options;
  const std::unique_ptr<RankTeam> team;               ///< the other ranks; null: there are none
  const std::optional<io::Labels> labels;             ///< that a file tells
  const std::shared_ptr<io::LiveLabels> live_labels;  ///< that people tell; null: none
  std::unique_ptr<io::Source> source_ahead;           ///< until the reader takes it
  const io::SourceInfo info;
  const std::shared_ptr<const io::StreamHealth> health;
  const TaskType& task;
  const bool live;  ///< frames come at their own rate
  const io::Drop drop;
  // A frame's way.
  io::FrameQueue queue;
  io::Resizer resizer;
  engine::TrainerOptions assembled;  ///< what the trainer is made of, but for its weights
  engine::Trainer trainer;
  const std::string unfit;  ///< on optimizer state that could not be taken; "": all was
  std::unique_ptr<FrameFeed> feed;
  std::unique_ptr<ReplayFeed> replay;       ///< null: what comes once is learned from once
  std::unique_ptr<LockstepFeed> lockstep;   ///< null: no other pipeline learns this network
  std::unique_ptr<SharedFeed> shared_feed;  ///< null: no other rank has the same modules
  Observers observers;
  // What watches.
  RunLog log;
  Callback callback;
  OverloadWatch overload;
  engine::RealTime real_time;
  Events events{trainer, *health, log.novelty()};
  StatusLine status{trainer, queue, log, overload, real_time, resumed.frames};
  std::atomic<double> rate{1.0};  ///< times optimizer.lr
  // What the config asks for beside; null where it does not.
  std::unique_ptr<Alerts> alerts;
  std::unique_ptr<AlertWatch> alert_watch;
  std::unique_ptr<VideoOut> video;
  std::unique_ptr<FrameLog> lines;
  std::unique_ptr<engine::ActionLog> actions;
  std::unique_ptr<TraceCounters> counters;
  std::optional<io::FolderClaim> claim;  ///< two runs would go on from each other's checkpoints
  CheckpointFiles checkpoints{config.checkpoint.dir};
  std::unique_ptr<engine::Checkpointer> checkpointer;
  WriteWatch writes;
  std::unique_ptr<LiveView> page;
  StdinLabels stdin_labels{config.task.labels == "-"};
  Reload reload;
  // What the user asks for, and how it went.
  std::function<void(const std::string&)> on_event;
  std::function<void()> on_tick;
  std::atomic<bool> stopping{false};
  std::unique_ptr<io::Reader> reader;      ///< null: not yet learning; it goes before its queue
  std::unique_ptr<RateWatch> rate_watch;   ///< null: not yet learning
  engine::FrameCounts frames;              ///< when it has learned
  engine::Clock::time_point began, ended;  ///< of learning
  std::string source_error;
  std::string alert_error;  ///< told of

 private:
  RunParts(CheckedConfig checked, RunOptions&& given);
  engine::TrainerOptions whole(engine::TrainerOptions options) const;
  std::unique_ptr<io::Teller> make_teller() const;
  std::unique_ptr<FrameFeed> make_feed();
  std::unique_ptr<ReplayFeed> make_replay();
  std::unique_ptr<VideoOut> make_video();
  std::unique_ptr<FrameLog> make_lines();
  std::unique_ptr<engine::Checkpointer> make_checkpointer();
  std::unique_ptr<LiveView> make_page();
  void make_alerts();
};

}  // namespace millrace::app
