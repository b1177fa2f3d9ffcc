// What viewers see of a run at one moment.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "engine/monitor/real_time.h"

namespace millrace::page {

/// One stage, beside what Snapshot::reading says of it.
struct StageState {
  std::string device;       ///< "cpu:0"; of its first replica
  int replicas = 1;         ///< workers that take samples in turn
  int dead = 0, units = 0;  ///< channels that a ReLU follows, and those it has silenced
  engine::Histogram busy;   ///< every step of every replica; its load is the sum's growth over time
};

/// The source's connection.
struct StreamState {
  bool connected = true;
  std::int64_t breaks = 0;
  std::int64_t reconnects = 0;
  std::int64_t frames_since = 0;   ///< frames received since it was last connected
  std::int64_t lost_upstream = 0;  ///< estimate: frames that never reached us
  std::string last_error;          ///< why it last broke off; empty if never
};

/// Losses may be nan; every other number is finite. Texts may contain URIs with credentials, which
/// must be redacted before a snapshot is served.
struct Snapshot {
  // What runs.
  std::string version;
  std::string source;              ///< its URI
  std::string task;                ///< "next-frame"
  std::string schedule;            ///< "partime"
  std::vector<int> cut;            ///< modules at which stages 1.. begin
  std::string correction;          ///< what is done about old gradients
  std::string local_note;          ///< what auxiliary heads would do instead; may be empty
  std::int64_t frames_before = 0;  ///< trained before the checkpoint; not in `frames`
  std::vector<StageState> stages;
  std::vector<std::string> classes;  ///< of pixels: their names; empty: pictures show none

  engine::FrameCounts frames;

  // How well it predicts.
  double loss_last = 0;
  double loss_recent = 0;        ///< mean of the last 100 frames
  // The same of trivial predictors; nan: the task has none such.
  double mean_frame_recent = 0;
  double last_frame_recent = std::numeric_limits<double>::quiet_NaN();
  double linear_recent = std::numeric_limits<double>::quiet_NaN();
  std::string strongest;  ///< of the trivial predictors; empty: none is known yet
  double times = 0;       ///< how many times as large its error is
  /// With classes: share of the last 100 frames (or of their pixels) classified correctly, and the
  /// same for always choosing the most frequent class.
  struct Accuracy {
    double recent = 0, majority = 0;
  };
  std::optional<Accuracy> accuracy;
  std::optional<Accuracy> iou;  ///< of pixels' classes: mean intersection over union, likewise
  /// In dB, of the last 100 frames: the network's, and that of always predicting the mean of all
  /// frames, or the last frame (infinite: not applicable).
  struct Psnr {
    double recent = 0, mean_frame = 0, last_frame = 0;
  };
  std::optional<Psnr> psnr;
  std::int64_t unexpected = 0;  ///< frames whose loss was far above the usual
  std::int64_t events = 0;      ///< runs of such frames
  double deviation = 0;         ///< of the last frame's loss above the usual; 0 while settling
  bool in_event = false;

  // Does it hold the stream's rate?
  engine::Reading reading;  ///< of as many stages as `stages`
  engine::Verdict verdict;
  engine::Histogram latency;  ///< capture to prediction

  // How it learns.
  double rate_in_force = 0;     ///< the learning rate as roll-backs and schedule have left it
  double backed_off = 1;        ///< the roll-backs' share in that; 1: recovered, or there was none
  std::int64_t roll_backs = 0;  ///< of the guard
  std::int64_t last_roll_back = 0;  ///< the frame whose loss led to the last one

  // Controls.
  double learning_rate = 0;  ///< as asked for
  bool paused = false;       ///< it has stopped, not only been asked to
  std::int64_t saves = 0;    ///< checkpoints written
  std::string label;         ///< what people say that frames show now; empty: nothing
  std::string notice;        ///< the result of the latest request, for people; may be empty

  // Failed writes.
  std::int64_t failed_saves = 0;  ///< checkpoints that could not be written
  std::string trouble;  ///< why a checkpoint or the log can't be written now; empty: they can

  StreamState stream;
};

}  // namespace millrace::page
