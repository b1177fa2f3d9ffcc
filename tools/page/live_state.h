// What somebody who looks on sees of a run at one moment.
#pragma once

#include <cstdint>  // counts
#include <string>   // names
#include <vector>   // one a stage

#include "tools/page/distribution.h"

namespace millrace::io {

/// One stage. Times are of one sample's step, in milliseconds, medians since the run began.
struct StageState {
  std::string device;             ///< "cpu:0"; of its first replica
  int replicas = 1;               ///< workers that take samples in turn
  double compute_ms = 0;          ///< forward, backward, update
  double handoff_ms = 0;          ///< taking and giving data
  double busy_ms = 0;             ///< both
  std::int64_t updates = 0;       ///< applied to its weights
  std::int64_t misses = 0;        ///< steps over budget
  std::int64_t gradient_age = 0;  ///< frames
  Distribution busy;  ///< every step of every replica; its load is the sum's growth over time
};

/// The source's connection; of a source that never breaks off it stays as it is here.
struct StreamState {
  bool connected = true;
  std::int64_t breaks = 0;
  std::int64_t reconnects = 0;
  std::int64_t frames_since = 0;   ///< frames received since it was last connected
  std::int64_t lost_upstream = 0;  ///< estimate: frames that never reached us
  std::string last_error;          ///< why it last broke off; empty if never
};

/// A plain value. Losses may be nan; every other number is finite. Texts may name URIs: whoever
/// serves a snapshot takes credentials out of them.
struct Snapshot {
  // What runs.
  std::string version;
  std::string source;    ///< its URI
  std::string task;      ///< "next-frame"
  std::string schedule;  ///< "partime"
  std::vector<int> cut;  ///< modules at which stages 1.. begin
  std::vector<StageState> stages;

  // Every frame's fate.
  std::int64_t received = 0;
  std::int64_t trained = 0;
  std::int64_t dropped = 0;         ///< a newer one took its place, or predicted only
  std::int64_t predicted_only = 0;  ///< of the dropped: predicted, and not learned from
  std::int64_t rejected = 0;

  // How well it predicts.
  double loss_last = 0;
  double loss_recent = 0;        ///< mean of the last 100 frames
  double mean_frame_recent = 0;  ///< the same for always predicting the mean of all frames
  std::int64_t unexpected = 0;   ///< frames whose loss was far above the usual
  std::int64_t events = 0;       ///< runs of such frames
  double deviation = 0;          ///< of the last frame's loss above the usual; 0 while settling
  bool in_event = false;

  // Does it hold the stream's rate? Milliseconds.
  double T = 0;           ///< the stages' median compute summed
  double T_over_N = 0;    ///< that over the number of workers
  double bottleneck = 0;  ///< slowest stage with its hand-off
  int bottleneck_stage = 0;
  double step_p50 = 0;  ///< from one prediction to the next
  double step_p99 = 0;
  double speedup_K = 0;
  double F = 0;       ///< frames a second of the source; 0: no rate to hold
  double budget = 0;  ///< 1/F
  bool holds = true;  ///< every frame lately was learned from in time
  std::string verdict;  ///< why, or why not, in a clause
  double latency_p50 = 0, latency_p99 = 0, latency_max = 0;  ///< capture to prediction
  Distribution latency;

  // What can be turned.
  double learning_rate = 0;
  bool paused = false;     ///< it has come to rest, not only been asked to
  std::int64_t saves = 0;  ///< times it was saved on demand
  std::string notice;      ///< what came of the latest demand, for people; may be empty

  StreamState stream;
};

}  // namespace millrace::io
