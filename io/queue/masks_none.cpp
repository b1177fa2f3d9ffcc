// Without OpenCV no mask can be decoded.
#include "io/queue/masks.h"

namespace millrace::io {

void require_masks(const std::string& folder) {
  throw MaskError(folder + ": this build has no OpenCV to decode masks with");
}

std::unique_ptr<Teller> mask_teller(const std::string& folder, int, const ResizerOptions&, int,
                                    int) {
  require_masks(folder);
  return nullptr;
}

}  // namespace millrace::io
