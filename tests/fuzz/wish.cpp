#include "tests/fuzz/target.h"
#include "tools/page/json.h"

/// A request to the controls.
MILLRACE_FUZZ(wish) {
  millrace::page::Controls controls({});
  (void)millrace::page::obey(text, controls);
}
