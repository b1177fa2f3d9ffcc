// LibTorch's name for a device.
#pragma once

#include <c10/core/Device.h>

#include "engine/trainer/device.h"

namespace millrace::engine {

inline c10::Device torch_device(const Device& device) {
  return device.cuda ? c10::Device(c10::kCUDA, c10::DeviceIndex(device.index))
                     : c10::Device(c10::kCPU);
}

}  // namespace millrace::engine
