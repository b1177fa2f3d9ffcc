#include "tests/fuzz/target.h"
#include "tools/page/json.h"

/// What a viewer asks for.
MILLRACE_FUZZ(wish) {
  millrace::page::Controls controls({});
  (void)millrace::page::obey(text, controls);
}
