#include "tools/app/provenance.h"

#include <torch/version.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "capture/devices.h"

namespace millrace::app {

namespace {

/// What follows `key` and a colon in a file of such lines; "": nothing.
std::string value_in(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return line.substr(line.find(':') + 1);
  return "";
}

}  // namespace

std::string host_name() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return host;
}

std::int64_t resident_bytes(const std::string& which) {
  return 1024 * std::atoll(value_in("/proc/self/status", which + ":").c_str());
}

nlohmann::ordered_json provenance(int threads) {
  const std::string cpu = value_in("/proc/cpuinfo", "model name");
  return {{"version", MILLRACE_VERSION},
          {"compiler", std::string(MILLRACE_COMPILER) + " " + __VERSION__},
          {"libtorch", TORCH_VERSION},
          {"cuda", MILLRACE_CUDA},
          {"cpu", cpu.empty() ? "unknown" : cpu.substr(1)},
          {"gpu", capture::cuda_devices() > 0 ? capture::cuda_device_name(0) : ""},
          {"threads", threads}};
}

}  // namespace millrace::app
