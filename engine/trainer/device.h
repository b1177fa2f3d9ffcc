// Needs no LibTorch.
#pragma once

#include <charconv>
#include <string>
#include <vector>

#include "engine/format.h"

namespace millrace::engine {

struct Device {
  bool cuda = false;
  int index = 0;  ///< CUDA device, or the core among those this process may use
  bool operator==(const Device&) const = default;
  std::string name() const { return (cuda ? "cuda:" : "cpu:") + std::to_string(index); }
};

/// "cpu:0" or "cuda:0". Throws std::invalid_argument for another form, or what does not exist.
inline Device parse_device(const std::string& text, int cores, int cuda_devices) {
  const std::size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  const std::string index = colon == std::string::npos ? "" : text.substr(colon + 1);
  Device device{.cuda = kind == "cuda"};
  const char* const end = index.data() + index.size();
  const auto [rest, error] = std::from_chars(index.data(), end, device.index);
  const bool known = kind == "cpu" || device.cuda;
  require_that(known && error == std::errc() && rest == end && device.index >= 0,
               R"("%s" is not a device; use the form "cpu:0" or "cuda:0")", text.c_str());
  const int there = device.cuda ? cuda_devices : cores;
  require_that(device.index < there, "\"%s\" does not exist: there are %d %s", text.c_str(), there,
               device.cuda ? "CUDA devices" : "usable cores");
  return device;
}

/// One device per stage. `asked`: {"auto"}, {"cpu"}, {"cuda"}, or one per stage as {"cpu:0",
/// "cuda:1"}. Devices are reused in turn if there are fewer than stages; cores are spaced by each
/// stage's `threads` (empty: 1). `auto`: CUDA if there is any. Throws std::invalid_argument.
inline std::vector<Device> place_stages(const std::vector<std::string>& asked, int stages,
                                        int cores, int cuda_devices,
                                        const std::vector<int>& threads = {}) {
  std::vector<Device> devices;
  const std::string all = asked.size() == 1 ? asked[0] : "";
  if (all == "auto" || all == "cpu" || all == "cuda") {
    const bool cuda = all == "cuda" || (all == "auto" && cuda_devices > 0);
    require_that(!cuda || cuda_devices > 0, "\"cuda\": no CUDA device is there");
    int core = 0;
    for (int i = 0; i < stages; ++i) {
      devices.push_back({cuda, cuda ? i % cuda_devices : core % cores});
      core += threads.empty() ? 1 : threads[std::size_t(i)];
    }
    return devices;
  }
  for (const std::string& text : asked) devices.push_back(parse_device(text, cores, cuda_devices));
  require_that(int(devices.size()) == stages, "%zu devices for %d stages; name one a stage",
               devices.size(), stages);
  return devices;
}

}  // namespace millrace::engine
