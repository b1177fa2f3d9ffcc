#include <stdexcept>

#include "tests/fuzz/target.h"
#include "tools/cli/compare/compare.h"

MILLRACE_FUZZ(report) {
  try {
    (void)millrace::cli::compare_text({millrace::cli::read_report(millrace::fuzz::as_file(text))});
  } catch (const std::invalid_argument&) {
  }
}
