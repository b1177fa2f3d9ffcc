// For a build without FFmpeg's libraries.
#include "io/source/source_kinds.h"

namespace millrace::io {

std::unique_ptr<Source> open_ffmpeg(const SourceOptions& options, const std::string&) {
  throw source_error(options, "this build has no decoder for it");
}

bool ffmpeg_alone_turns(const std::string&) {
  return false;
}

}  // namespace millrace::io
