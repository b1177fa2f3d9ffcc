#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/source/codecs.h"
#include "io/source/source_images.h"
#include "io/source/source_kinds.h"
#include "io/source/source_reconnecting.h"

namespace millrace::io {
namespace {

namespace fs = std::filesystem;

// The backends' errors say little about missing or unreadable files.
void require_readable_file(const SourceOptions& options, const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) throw source_error(options, "no such file");
  if (error) throw source_error(options, error.message());
  if (fs::is_directory(status)) {
    throw source_error(options, "is a folder; images:" + path + " reads the pictures in it");
  }
  if (fs::is_fifo(status)) return;  // opening it would block without a writer
  errno = 0;
  if (!std::ifstream(path)) throw source_error(options, std::strerror(errno));
  if (fs::is_regular_file(status) && fs::file_size(path, error) == 0) {
    throw source_error(options, "the file is empty");
  }
}

}  // namespace

std::unique_ptr<Source> open_file(const SourceOptions& options) {
  const std::string path = file_path(split_uri(options.uri));
  require_readable_file(options, path);
  // OpenCV turns pictures by their EXIF.
  if (is_still(path) && path.find('%') == path.npos) {
    SourceOptions picture = options;
    picture.uri = "images:" + path;
    return open_images(picture);
  }
  if (fs::is_regular_file(path) &&
      (gstreamer_version().empty() || codecs().ffmpeg_alone_turns(path)))
    return codecs().open_ffmpeg(options, path);
  try {
    return open_gstreamer(options);
  } catch (const SourceError& first) {
    if (!fs::is_regular_file(path)) throw;
    try {
      return codecs().open_ffmpeg(options, path);
    } catch (const SourceError&) {
      throw first;  // the first error names what is missing
    }
  }
}

// A user's pipeline may end, and a playlist says so. Cameras and endless streams only break, and so
// do RTSP streams: many have a length, or say goodbye when their server restarts.
std::unique_ptr<Source> open_stream(const SourceOptions& options) {
  std::unique_ptr<Source> first = open_gstreamer(options);
  if (!first->info().live || !options.reconnect.enabled) return first;
  const bool is_playlist =
      options.uri.substr(0, options.uri.find_first_of("?#")).ends_with(".m3u8");
  return std::make_unique<ReconnectingSource>(
      options.reconnect, std::move(first),
      [options] { return open_gstreamer(options, /*wait=*/false); }, make_origin_probe(options.uri),
      /*end_is_loss=*/split_uri(options.uri).scheme != "gst" && !is_playlist);
}

}  // namespace millrace::io
