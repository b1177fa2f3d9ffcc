// The double does what a Stream must.
#include "tests/capture/double_stream.h"
#include "tests/capture/stream_test.h"

namespace millrace::capture {

std::unique_ptr<Stream> stream_to_test() {
  return make_double_stream(true);
}
c10::Device device_to_test() {
  return c10::kCPU;
}

}  // namespace millrace::capture
