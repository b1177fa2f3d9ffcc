// A class for each pixel, from a folder of pictures.
#pragma once

#include <memory>     // tellers
#include <stdexcept>  // MaskError
#include <string>     // paths

#include "io/queue/resizer.h"
#include "io/source/told_source.h"

namespace millrace::io {

/// A folder of masks that can't be used: "FOLDER/FILE: what is wrong".
struct MaskError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A pixel of this value has no class.
constexpr int kNoClass = 255;

/// Throws MaskError unless `folder` has masks whose names tell their frames.
void require_masks(const std::string& folder);

/// The target of frame 17 is the picture whose name ends in that number (`00017.png`): grey, 8
/// bits, as large as its frame; a pixel's value is its class, 255: none. It goes the frame's way to
/// the size of samples (`view`, sizes known), without mixing pixels. A frame without a mask, or
/// with one that tells no class, has no target. Looks at every file's size first: they must be
/// `width` x `height`. Throws MaskError, later as well, for what can't be decoded or tells an
/// unknown class.
std::unique_ptr<Teller> mask_teller(const std::string& folder, int classes,
                                    const ResizerOptions& view, int width, int height);

/// `mask`, [height][width] classes, as 1 in the class's channel and 0 in the others, at the view's
/// size; false if no pixel has a class. Throws MaskError, "class 9 ...", for an unknown one.
bool spread_classes(const Frame& mask, int classes, const ResizerOptions& view,
                    std::vector<float>& out);

}  // namespace millrace::io
