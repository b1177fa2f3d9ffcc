#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/source/labels.h"
#include "tools/app/outputs/live_view.h"
#include "tools/app/outputs/records.h"
#include "tools/app/roll_back_watch.h"

namespace millrace::app {

/// Config and options of a run, checked before any source is opened.
struct Request {
  Request(const Config& given, RunOptions options);

  /// The source's name in reports; "": the caller's own source.
  std::string source() const;

  const Config config;
  const RunOptions options;
  Resumed resumed;                 ///< the checkpoint to continue from
  engine::TrainerOptions trainer;  ///< as far as the config sets them
  const std::optional<io::Labels> labels;
  const std::shared_ptr<io::LiveLabels> live_labels;  ///< from users during the run, or null
  std::vector<std::unique_ptr<Sink>> sinks;
};

/// Status and events for users during learning, and their requests. Main thread only.
class Console {
 public:
  /// `run` outlives this. Throws std::runtime_error if the page can't be served.
  explicit Console(RunParts& run);

  bool paused() const { return page && page->paused(); }
  void tell(const std::string& line) {
    if (on_event && !line.empty()) on_event(line);
  }
  /// Reports events since the last call and serves viewers' requests.
  void look();
  std::string status(bool verbose);
  /// Reads the config again and applies optimizer.lr, monitor.fps, checkpoint.every and the files
  /// written at the end (but not the video); other keys need a restart. Changes nothing if the
  /// config is wrong. Returns a line about it.
  std::string reload();

  std::function<void(const std::string& line)> on_event;
  std::function<void()> on_tick;
  std::unique_ptr<LiveView> page;  ///< null: no page and no broker
  Config config;                   ///< as last reloaded

 private:
  void tell_source();
  void tell_novelty();
  void tell_dead_units();
  /// Reports when an output can't be written, and when it can again.
  void tell_failure(const std::string& output, const std::string& now, std::string& before);
  /// tell(), rate-limited.
  void complain(const std::string& line);
  void hear_labels();
  bool apply(const std::string& key, const Config& fresh);

  RunParts& run_;
  // Values last reported.
  bool connected_ = true, in_event_ = false, dead_told_ = false;
  std::int64_t events_ = 0;
  RollBackWatch roll_backs_;
  std::string alert_error_, checkpoint_error_, log_error_;
  // Time and trained frames at the last status line.
  std::chrono::steady_clock::time_point shown_at_ = std::chrono::steady_clock::now();
  std::int64_t shown_ = 0;
  bool stdin_open_;
  std::string stdin_line_;
  std::int64_t complaints_ = 0, untold_ = 0;
  std::chrono::steady_clock::time_point complained_at_;
};

/// The parts of a run in the order in which a frame passes through them; each is built from those
/// before it. Ready to learn once constructed. Thread-bound, except progress.stopping.
struct RunParts {
  /// Checks config and options, then opens the source. Throws as Run does.
  RunParts(const Config& given, RunOptions options);

  engine::FrameCounts frames() {
    engine::FrameCounts frames = intake.frames(learner.trainer.monitor().tally().counts());
    frames.rejected += learner.feed->unfit();
    return frames;
  }

  /// Adds the other ranks' parts to `state`, learned here.
  stages::StateDict with_other_ranks(stages::StateDict state) const {
    return team ? team->whole(std::move(state)) : state;
  }

  Request request;
  Progress progress;
  const std::unique_ptr<RankTeam> team;
  Intake intake;
  Learner learner;
  Records records;
  Console console;
};

}  // namespace millrace::app
