#include <opencv2/imgcodecs.hpp>

#include "io/source/codecs.h"
#include "io/source/source_kinds.h"

namespace millrace::io {

const Codecs millrace_codecs = {
    .imread = cv::imread,
    .imencode = cv::imencode,
    .open_ffmpeg = [](const SourceOptions& options, const std::string&) -> std::unique_ptr<Source> {
      throw source_error(options, "this build has no decoder for it");
    },
    .ffmpeg_alone_turns = [](const std::string&) { return false; },
};

}  // namespace millrace::io
