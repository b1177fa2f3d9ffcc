#include <stdexcept>

#include "engine/schedule/schedule_csv.h"
#include "engine/schedule/verifier.h"
#include "tests/fuzz/target.h"

MILLRACE_FUZZ(csv) {
  try {
    (void)millrace::engine::verify(millrace::engine::parse_schedule_csv(text));
  } catch (const std::invalid_argument&) {
  }
}
