// Without OpenCV no picture changes its size.
#include <stdexcept>  // the refusal

#include "io/queue/resizer.h"

namespace millrace::io {

void Resizer::scale(const Frame&, const Placement& placement) {
  const auto size = [](const Region& r) {
    return std::to_string(r.width) + "x" + std::to_string(r.height);
  };
  throw std::runtime_error("this build has no OpenCV: a frame of " + size(placement.from) +
                           " can't be rescaled to " + size(placement.to));
}

}  // namespace millrace::io
