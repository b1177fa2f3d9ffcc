// Checks the files that a command will write.
#pragma once

#include <string>
#include <vector>

#include "tools/app/config/config.h"

namespace millrace::app {

/// Throws ConfigError if an output in `config` can't be written, has another format's extension, or
/// is a file that the run reads or writes under another key: by its path, a link or a second hard
/// link. `trace`: the file of --trace. Tests each folder by creating and removing a file.
void require_outputs(const Config& config, const std::string& trace = "");
/// Whether one of them is stdout.
bool uses_stdout(const Config& config, const std::string& trace);

/// A key or an option, and the file it names; "": none.
struct NamedFile {
  std::string name, path;
};
/// As require_outputs(), for a command that writes `outputs` and reads `inputs`.
void require_other_files(const std::vector<NamedFile>& outputs, std::vector<std::string> inputs);

}  // namespace millrace::app
