#include <algorithm>
#include <stdexcept>

#include "io/video/video_writer.h"

namespace millrace::io {

void side_by_side(const Frame& left, const Frame& right, Frame& out) {
  if (left.height != right.height || left.channels != right.channels) {
    throw std::invalid_argument("pictures side by side must have one height and one format");
  }
  out.id = left.id;
  out.captured = left.captured;
  out.pts = left.pts;
  out.width = left.width + right.width;
  out.height = left.height;
  out.channels = left.channels;
  out.pixels.resize(out.bytes());
  auto to = out.pixels.begin();
  for (int y = 0; y < out.height; ++y) {
    for (const Frame* const from : {&left, &right}) {
      const std::size_t row = std::size_t(from->width) * from->channels;
      to = std::copy_n(from->pixels.begin() + y * row, row, to);
    }
  }
}

}  // namespace millrace::io
