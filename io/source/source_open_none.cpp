// The opener of a build without GStreamer and OpenCV.
#include <algorithm>  // std::find

#include "io/source/source_kinds.h"

namespace millrace::io {

std::unique_ptr<Source> open_source(const SourceOptions& options) {
  if (options.channels != 1 && options.channels != 3) {
    throw source_error(options, "channels must be 1 or 3");
  }
  if (options.uri.empty()) throw SourceError("source: no URI is given");
  const Uri uri = split_uri(options.uri);
  if (uri.scheme == "synth") return open_synth(options);
  const bool known = std::find(kSchemes.begin(), kSchemes.end(), uri.scheme) != kSchemes.end();
  if (uri.scheme.empty() || known) {
    throw source_error(options,
                       "this build has no GStreamer and no OpenCV; only synth:shapes can be read");
  }
  throw unknown_scheme(options, uri.scheme);
}

}  // namespace millrace::io
