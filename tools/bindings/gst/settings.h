// What the element's properties say.
#pragma once

#include <cstdint>
#include <string>

#include "tools/app/config/config.h"
#include "tools/bindings/gst/picture.h"

namespace millrace::gst {

struct Settings {
  std::string config;       ///< file; "": every key at its default
  std::string set;          ///< "table.key=value" on top, one a line or between semicolons
  std::string schedule;     ///< "": as the config says
  std::string weights;      ///< to start from, if the file is there, and to save to; "": by config
  std::string report;       ///< where to write it; "": by config
  std::string serve;        ///< address of a page to watch on; "": none
  std::int64_t frames = 0;  ///< to train; 0: until the stream ends
  double rate = 1.0;        ///< times optimizer.lr
  Output output = Output::prediction;
  bool qos = true;             ///< don't draw what is too late to be shown
  bool post_messages = false;  ///< one for each prediction
};

/// The config that they ask for, learned from what `sink` names. Throws ConfigError.
app::Config config_of(const Settings& settings, const std::string& sink);

}  // namespace millrace::gst
