#include "io/source/labels.h"
#include "tests/fuzz/target.h"

MILLRACE_FUZZ(labels) {
  try {
    (void)millrace::io::read_labels(millrace::fuzz::as_file(text)).of(3, std::chrono::seconds(2));
  } catch (const millrace::io::LabelError&) {
  }
}
