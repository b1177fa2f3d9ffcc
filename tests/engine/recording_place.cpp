#include "tests/engine/recording_place.h"

#include "tests/capture/double_stream.h"

namespace millrace::engine {

void record_there(TrainerOptions& options) {
  options.make_backend = [](c10::Device) { return backend_there(); };
}

std::unique_ptr<capture::Backend> backend_there() {
  return capture::make_double_stream(true);
}

c10::Device device_there() {
  return at::kCPU;
}

}  // namespace millrace::engine
