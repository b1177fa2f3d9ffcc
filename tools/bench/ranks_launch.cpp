#include "tools/bench/ranks_launch.h"

#include <stdlib.h>  // mkdtemp
#include <unistd.h>  // rmdir

#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace millrace::bench {
namespace {

const char* const kHosts =
#include "tools/bench/hosts.inc"
    ;
const char* const kPyTorch =
#include "tools/bench/pytorch_ranks.inc"
    ;

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<double> numbers(const std::string& text, std::size_t count) {
  std::istringstream in(text);
  std::vector<double> all;
  for (double number; in >> number;) all.push_back(number);
  if (all.size() != count)
    throw std::runtime_error("expected " + std::to_string(count) + " figures, got: " + text);
  return all;
}

}  // namespace

RankLauncher::RankLauncher() : program_(std::filesystem::read_symlink("/proc/self/exe")) {
  std::string folder = std::filesystem::temp_directory_path() / "millrace-ranks-XXXXXX";
  if (!mkdtemp(folder.data())) throw std::runtime_error("no temporary folder " + folder);
  folder_ = folder;
  std::ofstream(folder_ / "hosts.py") << kHosts;
  std::ofstream(folder_ / "pytorch_ranks.py") << kPyTorch;
}

RankLauncher::~RankLauncher() {
  // Not remove_all(): libtorch.so brings one of its own, which crashes.
  for (const char* name : {"hosts.py", "pytorch_ranks.py", "out", "err", "report.json"})
    std::remove((folder_ / name).c_str());
  rmdir(folder_.c_str());
}

std::string RankLauncher::lacks_hosts() {
  try {
    call({"python3", folder_ / "hosts.py", "2", "--delay-ms", "0.1", "--", "true"});
    return "";
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

std::vector<std::string> RankLauncher::over(const RankPlace& place, int ranks) const {
  if (ranks == 1) return {};
  if (place.hosts == 0) {
    return {"mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--quiet",
            "-n",     std::to_string(ranks)};
  }
  return {"python3",
          folder_ / "hosts.py",
          std::to_string(place.hosts),
          "--ranks",
          std::to_string(ranks),
          "--delay-ms",
          std::to_string(place.delay_ms),
          "--"};
}

std::string RankLauncher::call(const std::vector<std::string>& command) const {
  std::string line = "exec";
  for (const std::string& word : command) line += " " + quoted(word);
  line += " < /dev/null > " + quoted(folder_ / "out") + " 2> " + quoted(folder_ / "err");
  if (std::system(line.c_str()) == 0) return contents(folder_ / "out");
  const std::string said = contents(folder_ / "err");
  throw std::runtime_error(command.front() + ": " + said.substr(0, said.find('\n')));
}

nlohmann::ordered_json RankLauncher::run(const RankPlace& place, int ranks,
                                         const std::vector<std::string>& settings,
                                         std::int64_t frames) {
  std::vector<std::string> command = over(place, ranks);
  const std::string report = folder_ / "report.json";
  for (const std::string& word :
       {std::string(program_), std::string("run"), std::string("--quiet"), std::string("--frames"),
        std::to_string(frames), std::string("--report"), report})
    command.push_back(word);
  for (const std::string& setting : settings) {
    command.push_back("--set");
    command.push_back(setting);
  }
  call(command);
  return nlohmann::ordered_json::parse(contents(report));
}

PingPong RankLauncher::ping_pong(const RankPlace& place, std::int64_t bytes) {
  std::vector<std::string> command = over(place, 2);
  command.push_back(program_.parent_path() / "ranks_ping_pong");
  command.push_back(std::to_string(bytes));
  const std::vector<double> took = numbers(call(command), 2);
  return {.us = took[0], .cold_us = took[1]};
}

std::vector<double> RankLauncher::pytorch_ms(const std::string& python, std::int64_t size,
                                             int microbatches, double seconds,
                                             const std::vector<std::string>& schedules) {
  std::vector<std::string> command = {python, folder_ / "pytorch_ranks.py", std::to_string(size),
                                      std::to_string(microbatches), std::to_string(seconds)};
  command.insert(command.end(), schedules.begin(), schedules.end());
  return numbers(call(command), schedules.size());
}

}  // namespace millrace::bench
