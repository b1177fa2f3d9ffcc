// What a run is to do: config and options, checked.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "engine/trainer/trainer.h"
#include "io/source/labels.h"
#include "tools/app/checkpoint_files.h"
#include "tools/app/plugins/plugin.h"
#include "tools/app/run.h"

namespace millrace::app {

/// Made before any source is opened.
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

}  // namespace millrace::app
