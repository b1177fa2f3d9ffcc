#include "io/video/video_writer.h"

#include <algorithm>
#include <stdexcept>

#include "io/network/dial.h"
#include "io/source/source.h"  // redacted
#include "io/source/uri.h"

namespace millrace::io {

std::string video_target_error(const std::string& to) {
  Uri uri = split_uri(to);
  if (uri.scheme != "rtsp") {
    const bool known = to.ends_with(".mp4") || to.ends_with(".mkv");
    return known ? "" : "a video is FILE.mp4, FILE.mkv or rtsp://ADDRESS:PORT/PATH";
  }
  const Authority at = authority(uri);
  if (at.host.empty()) uri.rest = "//localhost" + (at.port.empty() ? "" : ":" + at.port);
  const std::string wrong = authority_error(uri, 0);
  const bool safe =
      at.host.empty() || is_loopback(at.host) || (!at.user.empty() && !at.password.empty());
  if (!wrong.empty() || safe) return wrong;
  return "others can reach " + at.host + ": serving there needs rtsp://USER:PASSWORD@" + at.host;
}

void side_by_side(const Frame& left, const Frame& right, Frame& out) {
  if (left.height != right.height || left.channels != right.channels) {
    throw std::invalid_argument("pictures side by side must have one height and one format");
  }
  out.id = left.id;
  out.captured = left.captured;
  out.pts = left.pts;
  out.reshape(left.width + right.width, left.height, left.channels);
  auto to = out.pixels.begin();
  for (int y = 0; y < out.height; ++y) {
    for (const Frame* const from : {&left, &right}) {
      const std::size_t row = std::size_t(from->width) * from->channels;
      to = std::copy_n(from->pixels.begin() + y * row, row, to);
    }
  }
}

}  // namespace millrace::io
