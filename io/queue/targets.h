// Targets from pictures in a folder, or from another stream such as a second camera.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "io/queue/resizer.h"
#include "io/source/source.h"

namespace millrace::io {

/// "FOLDER/FILE: what is wrong".
struct MaskError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr int kNoClass = 255;

/// Throws MaskError unless `folder` holds masks whose names end in frame numbers. Decodes the
/// first.
void require_masks(const std::string& folder);

/// The target of frame 17 is the picture whose name ends in that number (`00017.png`): grey, 8
/// bits, as large as its frame; a pixel's value is its class, 255 means none. Masks are cropped and
/// scaled like their frames (`view`, with sizes set), by nearest neighbour. A frame has no target
/// if its mask is missing or without classes. All files must be `width` x `height`, which is
/// checked first. Throws MaskError, also later: a mask can't be decoded or has an unknown class.
Teller mask_teller(const std::string& folder, int classes, const ResizerOptions& view, int width,
                   int height);

/// The target of a frame is the frame of `source` with the same number or, if `live`, the newest
/// one unless it is more than two frames old; scaled to `size` (with sides set). None if that
/// stream has ended, hangs or could not decode it.
Teller stream_teller(std::unique_ptr<Source> source, const ResizerOptions& size, bool live);

}  // namespace millrace::io
