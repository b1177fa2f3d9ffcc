// What a run writes: told at the start where it can't, and each on its own at the end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/app/config/config.h"

namespace millrace::app {

/// Throws ConfigError if a file that `config` wants written plainly can't be: a folder bears its
/// name, or it lies where nobody may write. Writes nothing.
void require_writable(const Config& config);
/// The same for one file, named by an option: std::invalid_argument "PATH: cause".
void require_writable(const std::string& path);

/// Writes outputs one by one; one that fails costs no other.
class Outputs {
 public:
  /// Calls `write(path)` unless `path` is empty, and keeps what it throws.
  void write(const std::string& path, const std::function<void(const std::string& path)>& write);
  const std::vector<std::string>& failures() const { return failures_; }

 private:
  std::vector<std::string> failures_;
};

}  // namespace millrace::app
