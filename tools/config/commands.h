// What each command of the program is asked, and its doing. Each returns the exit code, or throws.
#pragma once

#include <cstdint>    // counts
#include <stdexcept>  // UsageError
#include <string>     // paths
#include <vector>     // settings

#include "engine/schedule/schedule.h"

namespace millrace::tools {

/// The exit codes users' scripts rely on.
enum ExitCode { kDone = 0, kRunFailed = 1, kBadUsage = 2, kNoSource = 3 };

struct RunArguments {
  std::string config;  ///< "": every key at its default
  std::vector<std::string> settings;
  std::int64_t frames = 0;  ///< 0: until the source ends
  std::string report;
  std::string trace;     ///< where to write what workers did and when; "": nowhere
  bool serve = false;    ///< a page to watch on
  std::string serve_at;  ///< "ADDR:PORT"; "": loopback, port 8080
  std::string token;     ///< asked of whoever watches; "": of nobody
  bool quiet = false;
};
int run_command(const RunArguments& arguments);

struct CheckArguments {
  std::string config;
  std::vector<std::string> settings;
  bool keys = false;  ///< print the reference of all keys instead
};
int check_command(const CheckArguments& arguments);

/// A schedule by name and parameters.
struct ScheduleChoice : engine::ScheduleSpec {
  ScheduleChoice() { stages = 0; }  ///< 4, or as many as the file has
};

struct ScheduleArguments : ScheduleChoice {
  std::int64_t samples = 8;
  std::string format = "grid";  ///< grid | csv
};
int schedule_command(const ScheduleArguments& arguments);

struct PlanArguments {
  std::string
      input;  ///< a profile (JSON, or PipeDream's graph.txt), or a config (.toml) to measure
  std::vector<std::string> settings;         ///< of the config
  std::string devices = "2";                 ///< "8", "2x8": servers x devices
  std::string links;                         ///< GB/s[:ms] by level, as "3.125,30:0.01"
  std::string overlap = "none";              ///< none | transfers | all
  double memory_gb = 0;                      ///< of a device; 0: no limit
  std::vector<std::string> schedules;        ///< "any": all; empty: the config's, or partime
  std::vector<std::int64_t> microbatches;    ///< to try; empty: the config's
  std::vector<std::int64_t> virtual_stages;  ///< to try; empty: the config's
  bool recompute = false;
  bool replicas = false;
  bool threads = false;
  std::int64_t most_tensor = 1;
  std::int64_t most_copies = 1;
  std::int64_t stages = 0;   ///< exactly so many; 0: as are best
  std::int64_t frames = 1;   ///< graph.txt: frames that its figures are for
  double fps = 0;            ///< F; 0: the config's
  std::string kind = "cpu";  ///< what the table calls devices
  std::string output;        ///< where to write the [pipeline] table; "": nowhere
  std::string json;          ///< where to write all of it; "": nowhere
};
int plan_command(const PlanArguments& arguments);

struct ProfileArguments {
  std::string config;
  std::vector<std::string> settings;
  std::string json;  ///< where to write it; "": nowhere
  bool operators = false;  ///< print the step programs' operators instead
};
int profile_command(const ProfileArguments& arguments);

struct SimulateArguments : ScheduleChoice {
  std::int64_t samples = 0;  ///< 0: enough for a steady period
  // What a sample costs: one value, or one a stage; or a profile.
  std::vector<double> forward = {1}, backward = {2}, update = {0};  ///< ms
  double message_bytes = 0, weight_bytes = 0, stash_bytes = 0;      ///< of every stage
  std::string profile;   ///< JSON, or PipeDream's graph.txt
  std::vector<int> cut;  ///< of the profile's modules; empty: balanced
  // What it runs on.
  double link_latency_ms = 0, link_gbps = 0;  ///< Gbit/s; 0: bytes cost nothing
  std::string devices, links;                 ///< as plan takes them
  std::string overlap = "none";               ///< none | transfers | all
  double overhead_ms = 0, contention = 1;
  std::int64_t cores = 0;  ///< 0: one a worker
  double fps = 0;          ///< of a live source; 0: samples are there when asked for
  // Where to write what; "": nowhere.
  std::string trace, svg, json;
  double until_ms = 0;  ///< of the SVG; 0: as long as names fit
};
int simulate_command(const SimulateArguments& arguments);

struct TensorboardArguments {
  std::string log;     ///< what output.log left
  std::string folder;  ///< where to write the event file
};
int tensorboard_command(const TensorboardArguments& arguments);

struct CompareArguments {
  std::vector<std::string> reports;
  std::vector<std::string> logs;  ///< one for each report; empty: those that reports name
  std::string plot;               ///< where to draw losses; "": nowhere
};
int compare_command(const CompareArguments& arguments);

int inspect_command(const std::string& uri);

}  // namespace millrace::tools
