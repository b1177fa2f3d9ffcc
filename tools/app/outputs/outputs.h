// Whether a run's outputs can be written, checked at its start.
#pragma once

#include <string>

#include "tools/app/config/config.h"

namespace millrace::app {

/// Throws ConfigError if a file that `config` asks for can't be written: its path is a folder, or
/// the folder that it belongs in is missing rights. Writes nothing.
void require_writable(const Config& config);
/// The same for one file, named by an option: std::invalid_argument "PATH: cause".
void require_writable(const std::string& path);

}  // namespace millrace::app
