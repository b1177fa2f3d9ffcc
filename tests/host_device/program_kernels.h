// How a kernel of step programs is done by a host: NVRTC's name of an instance is that of the one
// in this library. A file instantiates kernels, says what memory each's arguments reach, and
// registers them.
#pragma once

#define MILLRACE_HOST_DEVICE "tests/host_device/block.h"
#include <dlfcn.h>

#include <string>
#include <vector>

#include "tests/host_device/block.h"

namespace host_device {

/// What a kernel is told, with addresses that the host reaches, and the memory that it touches.
class Reached {
 public:
  explicit Reached(int launched) : blocks(launched) {}
  template <class T>
  void read(const T*& address, long long count) {
    address = note(address, count, false);
  }
  template <class T>
  void write(T*& address, long long count) {
    address = note(address, count, true);
  }
  const int blocks;
  std::vector<Range> device, host;

 private:
  template <class T>
  T* note(T* address, long long count, bool written) {
    if (!address) return address;
    const std::size_t bytes = std::size_t(count) * sizeof(T);
    device.push_back({address, bytes, written});
    auto* const here = static_cast<T*>(hostDeviceReach(address));
    host.push_back({here, bytes, written});
    return here;
  }
};

/// The work of a launch of a kernel with `Arguments`, which reach(arguments, at) notes.
template <class Arguments>
Work of(const Launch& launch) {
  Arguments arguments = *static_cast<Arguments*>(launch.arguments[0]);
  Reached at(int(launch.grid.x));
  reach(arguments, at);
  auto* const body = reinterpret_cast<void (*)(Arguments)>(dlsym(RTLD_DEFAULT, launch.name));
  if (!body) {
    hostDeviceFault(launch.name);
    return {.name = "a kernel that is not compiled for the host", .run = [] {}};
  }
  return {.name = "millrace's " + std::string(launch.name),
          .run = [=, memory = at.host] { run_blocks(launch, memory, [&] { body(arguments); }); },
          .ranges = at.device};
}

}  // namespace host_device
