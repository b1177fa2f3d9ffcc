#include "engine/trainer/device.h"

#include <charconv>

#include "engine/format.h"

namespace millrace::engine {
namespace {

Device parse(const std::string& text, int cores, int cuda_devices) {
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

}  // namespace

std::vector<Device> place_stages(const std::vector<std::string>& asked, int stages, int cores,
                                 int cuda_devices, const std::vector<int>& threads) {
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
  for (const std::string& text : asked) devices.push_back(parse(text, cores, cuda_devices));
  require_that(int(devices.size()) == stages, "%zu devices for %d stages; name one a stage",
               devices.size(), stages);
  return devices;
}

}  // namespace millrace::engine
