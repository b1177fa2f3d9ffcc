#include "io/source/file_headers.h"
#include "tests/fuzz/target.h"

/// What pictures and films say of themselves, before a library decodes them.
MILLRACE_FUZZ(headers) {
  const std::string file = millrace::fuzz::as_file(text);
  (void)millrace::io::picture_size(file);
  (void)millrace::io::cut_avi_duration(file);
}
