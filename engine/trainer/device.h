// Needs no LibTorch.
#pragma once

#include <string>
#include <vector>

namespace millrace::engine {

struct Device {
  bool cuda = false;
  int index = 0;  ///< CUDA device, or the core among those this process may use
  bool operator==(const Device&) const = default;
  std::string name() const { return (cuda ? "cuda:" : "cpu:") + std::to_string(index); }
};

/// One device per stage. `asked`: {"auto"}, {"cpu"}, {"cuda"}, or one per stage as {"cpu:0",
/// "cuda:1"}. Devices are reused in turn if there are fewer than stages; cores are spaced by each
/// stage's `threads` (empty: 1). `auto`: CUDA if there is any. Throws std::invalid_argument.
std::vector<Device> place_stages(const std::vector<std::string>& asked, int stages, int cores,
                                 int cuda_devices, const std::vector<int>& threads = {});

}  // namespace millrace::engine
