#include "engine/plan/pipedream_graph.h"
#include "tests/fuzz/target.h"

MILLRACE_FUZZ(graph) {
  try {
    (void)millrace::engine::plan::profile_from_graph(text, "g", 64);
  } catch (const millrace::engine::plan::ProfileError&) {
  }
}
