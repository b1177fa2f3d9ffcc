#include "io/network/dial.h"
#include "io/source/source.h"  // redacted
#include "io/source/uri.h"
#include "io/video/video_writer.h"

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
  const bool safe = at.host.empty() || is_loopback(at.host) ||
                    (!at.user.empty() && !at.password.empty());
  if (!wrong.empty() || safe) return wrong;
  return "others can reach " + at.host + ": serving there needs rtsp://USER:PASSWORD@" + at.host;
}

}  // namespace millrace::io
