// Runs over several processes, as a benchmark launches them.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace millrace::bench {

/// Where ranks run.
struct RankPlace {
  std::string name;
  int hosts = 0;        ///< network namespaces, a rank on each; 0: this machine, by shared memory
  double delay_ms = 0;  ///< between hosts, one way
};

/// Microseconds one way by bare MPI: one message after the other, and with other memory touched
/// between them.
struct PingPong {
  double us = 0, cold_us = 0;
};

/// Owns a folder for what it runs. Thread-bound. Throws std::runtime_error, with what was said, for
/// a command that fails.
class RankLauncher {
 public:
  RankLauncher();
  ~RankLauncher();
  RankLauncher(const RankLauncher&) = delete;
  RankLauncher& operator=(const RankLauncher&) = delete;

  /// Why there are no hosts here; "": there are.
  std::string lacks_hosts();

  /// The report of `millrace run --set SETTING... --frames FRAMES`. 1 rank: without mpirun.
  nlohmann::ordered_json run(const RankPlace& place, int ranks,
                             const std::vector<std::string>& settings, std::int64_t frames);
  PingPong ping_pong(const RankPlace& place, std::int64_t bytes);
  /// Milliseconds a sample of PyTorch's pipelining, by schedule.
  std::vector<double> pytorch_ms(const std::string& python, std::int64_t size, int microbatches,
                                 double seconds, const std::vector<std::string>& schedules);

 private:
  std::vector<std::string> over(const RankPlace& place, int ranks) const;
  /// What it prints.
  std::string call(const std::vector<std::string>& command) const;

  std::filesystem::path folder_, program_;
};

}  // namespace millrace::bench
