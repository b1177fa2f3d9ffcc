// What a run is asked to do.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/trainer/trainer.h"
#include "io/source/labels.h"
#include "io/source/live_labels.h"
#include "tools/app/plugins/plugin.h"
#include "tools/app/resume.h"
#include "tools/app/run.h"

namespace millrace::app {

/// Config and options, checked before any source is opened.
struct Request {
  /// Throws ConfigError.
  Request(const Config& given, RunOptions options);

  const Config config;
  const RunOptions options;
  Resumed resumed;                                    ///< the checkpoint that the run continues
  engine::TrainerOptions trainer;                     ///< as far as the config says
  const std::optional<io::Labels> labels;             ///< from a file
  const std::shared_ptr<io::LiveLabels> live_labels;  ///< from people, while it runs; null: none
  std::vector<std::unique_ptr<Sink>> sinks;
};

}  // namespace millrace::app
