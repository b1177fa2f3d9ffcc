#pragma once

#include <string>

#include "tools/app/config/config.h"

namespace millrace::app {

/// Throws ConfigError if an output in `config` can't be written, has another format's extension, or
/// is a file that the run reads or writes under another key: by its path, a link or a second hard
/// link. `trace`: the file of --trace. Tests each folder by creating and removing a file.
void require_outputs(const Config& config, const std::string& trace = "");
/// Checks one file named by an option. Throws std::invalid_argument "PATH: cause".
void require_writable(const std::string& path);

}  // namespace millrace::app
