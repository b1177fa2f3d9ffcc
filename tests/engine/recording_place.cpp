#include "tests/engine/recording_place.h"

#include "tests/capture/double_stream.h"

namespace millrace::engine {

std::vector<TrainerOptions> recorded(TrainerOptions options) {
  options.capture = Capture::graph;  // on cores, by step programs
  std::vector<TrainerOptions> ways(2, options);
  ways[0].make_backend = [](c10::Device) { return backend_there(); };
  return ways;
}

std::unique_ptr<capture::Backend> backend_there() {
  return capture::make_double_stream(true);
}

c10::Device device_there() {
  return at::kCPU;
}

}  // namespace millrace::engine
