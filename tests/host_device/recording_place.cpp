#include "tests/engine/recording_place.h"

namespace millrace::engine {

void record_there(TrainerOptions& options) {
  options.devices.assign(std::size_t(options.stages), {.cuda = true, .index = 0});
}

std::unique_ptr<capture::Backend> backend_there() {
  return capture::make_graph_backend(device_there());
}

c10::Device device_there() {
  return {at::kCUDA, 0};
}

}  // namespace millrace::engine
