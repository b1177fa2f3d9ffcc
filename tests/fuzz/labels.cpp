#include "io/source/labels.h"
#include "io/source/live_labels.h"
#include "tests/fuzz/target.h"

/// A file, and a label during a run.
MILLRACE_FUZZ(labels) {
  try {
    (void)millrace::io::read_labels(millrace::fuzz::as_file(text)).of(3, std::chrono::seconds(2));
  } catch (const millrace::io::LabelError&) {
  }
  millrace::io::LiveLabels live({"day", "night"});
  (void)live.hear(text);
  (void)live.of(17);
}
