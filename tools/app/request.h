#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/monitor/clock.h"
#include "engine/monitor/real_time.h"
#include "engine/trainer/trainer.h"
#include "io/source/labels.h"
#include "tools/app/checkpoint_files.h"
#include "tools/app/plugins/plugin.h"
#include "tools/app/run.h"

namespace millrace::app {

/// Config and options of a run, checked before any source is opened.
struct Request {
  Request(const Config& given, RunOptions options);

  /// The source's name in reports; "": the caller's own source.
  std::string source() const;
  /// The config with open choices filled in, as last reloaded. Any thread.
  Config running() const {
    const std::lock_guard lock(mutex_);
    return running_;
  }
  void set_running(Config now) {
    const std::lock_guard lock(mutex_);
    running_ = std::move(now);
  }

  const Config config;
  const RunOptions options;
  Resumed resumed;                 ///< the checkpoint to continue from
  engine::TrainerOptions trainer;  ///< as far as the config sets them
  const std::optional<io::Labels> labels;
  const std::vector<std::string> classes;             ///< names; empty: none are known
  const std::shared_ptr<io::LiveLabels> live_labels;  ///< from users during the run, or null
  std::vector<std::unique_ptr<Sink>> sinks;

 private:
  mutable std::mutex mutex_;
  Config running_;
};

/// Throws ConfigError unless plug-ins bring all sinks. Makes none: that may overwrite its file.
void require_sinks(const Config& config);

struct Progress {
  std::atomic<bool> stopping{false};       ///< no more frames are wanted; any thread
  engine::Clock::time_point began, ended;  ///< of learning
  bool learning = false;                   ///< workers are running; main thread
  engine::FrameCounts frames;              ///< set at the end
  std::string source_error;                ///< why the stream broke off; "": it didn't
};

}  // namespace millrace::app
