#include "tools/app/config/config.h"

#include "tests/fuzz/target.h"

/// A file; and its differences from the defaults, as after a reload.
MILLRACE_FUZZ(config) {
  using namespace millrace::app;
  try {
    const Config config = parse_config(text, "c.toml", {});
    (void)to_toml(config);
    (void)differences(parse_config("", "d.toml", {}), config);
  } catch (const ConfigError&) {
  }
}
