// Classes of pixels from a folder of pictures.
#pragma once

#include <stdexcept>
#include <string>

#include "io/queue/resizer.h"
#include "io/source/told_source.h"

namespace millrace::io {

/// A folder of masks that can't be used: "FOLDER/FILE: what is wrong".
struct MaskError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A pixel of this value has no class.
constexpr int kNoClass = 255;

/// Throws MaskError unless `folder` holds masks whose names end in frame numbers.
void require_masks(const std::string& folder);

/// The target of frame 17 is the picture whose name ends in that number (`00017.png`): grey, 8
/// bits, as large as its frame. A pixel's value is its class, 255 means none. Masks are cropped and
/// scaled as their frames are (`view`, whose sizes are set), without mixing pixels. A frame without
/// a mask, or whose mask has no class, has no target. Checks every file's size first, which must be
/// `width` x `height`. Throws MaskError, also later, if a mask can't be decoded or has an unknown
/// class.
Teller mask_teller(const std::string& folder, int classes, const ResizerOptions& view, int width,
                   int height);

}  // namespace millrace::io
