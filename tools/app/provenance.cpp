#include "tools/app/provenance.h"

#include <torch/version.h>
#include <unistd.h>

#include <fstream>

#include "capture/devices.h"

namespace millrace::app {

namespace {

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

}  // namespace

std::string host_name() {
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  return host;
}

std::int64_t resident_bytes(const std::string& which) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(which + ":")) return 1024 * std::stoll(line.substr(which.size() + 1));
  return 0;
}

nlohmann::ordered_json provenance(int threads) {
  return {{"version", MILLRACE_VERSION},
          {"compiler", std::string(MILLRACE_COMPILER) + " " + __VERSION__},
          {"libtorch", TORCH_VERSION},
          {"cuda", MILLRACE_CUDA},
          {"cpu", cpu_name()},
          {"gpu", capture::cuda_devices() > 0 ? capture::cuda_device_name(0) : ""},
          {"threads", threads}};
}

}  // namespace millrace::app
