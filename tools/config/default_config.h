// The embedded config: what `millrace run` does unasked. Its text is tools/default.toml.
#pragma once

namespace millrace::tools {

extern const char* const kDefaultConfig;

}  // namespace millrace::tools
