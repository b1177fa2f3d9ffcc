#include "tests/engine/recording_place.h"

namespace millrace::engine {

std::vector<TrainerOptions> recorded(TrainerOptions options) {
  options.capture = Capture::graph;
  options.devices.assign(std::size_t(options.stages), {.cuda = true, .index = 0});
  return {options};
}

std::unique_ptr<capture::Backend> backend_there() {
  return capture::make_graph_backend(device_there());
}

c10::Device device_there() {
  return {at::kCUDA, 0};
}

}  // namespace millrace::engine
