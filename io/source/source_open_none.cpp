// The openers of a build without GStreamer and OpenCV.
#include "io/source/source_kinds.h"

namespace millrace::io {
namespace {

SourceError refusal(const SourceOptions& options) {
  return source_error(options,
                      "this build has no GStreamer and no OpenCV; only synth:shapes can be read");
}

}  // namespace

std::unique_ptr<Source> open_file(const SourceOptions& options) {
  throw refusal(options);
}
std::unique_ptr<Source> open_stream(const SourceOptions& options) {
  throw refusal(options);
}
std::unique_ptr<Source> open_images(const SourceOptions& options) {
  throw refusal(options);
}

}  // namespace millrace::io
