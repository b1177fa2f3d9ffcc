// What each command of the program is asked, and its doing. Each returns the exit code, or throws.
#pragma once

#include <cstdint>    // counts
#include <stdexcept>  // UsageError
#include <string>     // paths
#include <vector>     // settings

namespace millrace::tools {

/// The exit codes users' scripts rely on.
enum ExitCode { kDone = 0, kRunFailed = 1, kBadUsage = 2, kNoSource = 3 };

struct RunArguments {
  std::string config;  ///< "": the embedded default
  std::vector<std::string> settings;
  std::int64_t frames = 0;  ///< 0: until the source ends
  std::string report;
  bool quiet = false;
};
int run_command(const RunArguments& arguments);

struct CheckArguments {
  std::string config;
  std::vector<std::string> settings;
  bool keys = false;  ///< print the reference of all keys instead
};
int check_command(const CheckArguments& arguments);

struct ScheduleArguments {
  std::string name;         ///< or a CSV file
  std::int64_t stages = 0;  ///< 0: 4, or as many as the file has
  std::int64_t samples = 8;
  std::int64_t microbatches = 4;
  std::int64_t virtual_stages = 2;
  bool vertical_sync = false;
  std::vector<int> replicas;
  bool recompute = false;
  std::string format = "grid";  ///< grid | csv
};
int schedule_command(const ScheduleArguments& arguments);

int inspect_command(const std::string& uri);

}  // namespace millrace::tools
