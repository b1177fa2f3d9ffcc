#include <stdexcept>

#include "tests/fuzz/target.h"
#include "tools/compare/compare.h"

MILLRACE_FUZZ(report) {
  try {
    (void)millrace::tools::compare_text(
        {millrace::tools::read_report(millrace::fuzz::as_file(text))});
  } catch (const std::invalid_argument&) {
  }
}
