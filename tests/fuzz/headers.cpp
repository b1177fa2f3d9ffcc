#include "io/source/file_headers.h"
#include "tests/fuzz/target.h"

/// Headers of picture and video files.
MILLRACE_FUZZ(headers) {
  const std::string file = millrace::fuzz::as_file(text);
  (void)millrace::io::picture_size(file);
  (void)millrace::io::cut_avi_duration(file);
}
