#include "tests/fuzz/target.h"
#include "tools/page/json.h"

/// What a viewer asks for.
MILLRACE_FUZZ(wish) {
  millrace::io::Controls controls({});
  (void)millrace::io::obey(text, controls);
}
