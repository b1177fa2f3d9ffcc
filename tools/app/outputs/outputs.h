// Whether a run's outputs can be written, checked at its start.
#pragma once

#include <string>

#include "tools/app/config/config.h"

namespace millrace::app {

/// Throws ConfigError if an output that `config` asks for can't be written, has the ending of
/// another format, or is a file that the run reads or writes under another key: by its path, a link
/// or a second hard link. `trace`: the file of --trace. Tries each folder with a file that it
/// removes again.
void require_outputs(const Config& config, const std::string& trace = "");
/// The same for one file, named by an option: std::invalid_argument "PATH: cause".
void require_writable(const std::string& path);

}  // namespace millrace::app
