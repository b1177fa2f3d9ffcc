#include "engine/plan_files/profile_json.h"
#include "tests/fuzz/target.h"

MILLRACE_FUZZ(profile) {
  try {
    (void)millrace::engine::plan::profile_from_json(text, "p");
  } catch (const millrace::engine::plan::ProfileError&) {
  }
}
