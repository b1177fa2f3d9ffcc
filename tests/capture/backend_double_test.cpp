// The double does what a Backend must.
#include "tests/capture/backend_test.h"
#include "tests/capture/double_stream.h"

namespace millrace::capture {

std::unique_ptr<Backend> backend_to_test() {
  return make_double_stream(true);
}
c10::Device device_to_test() {
  return c10::kCPU;
}

}  // namespace millrace::capture
