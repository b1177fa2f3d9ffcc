#pragma once

#include <string>
#include <vector>

namespace millrace::cli {

/// Replaces this program by another, found as a shell does. Returns if that can't be started.
void become(std::vector<std::string> words);

/// Replaces this program by Python: main() of millrace._`module` with `arguments`, its result as
/// exit code. `asker`: the command or option in error messages. Throws std::runtime_error if Python
/// can't be started.
[[noreturn]] void run_python(const std::string& asker, const std::string& module,
                             const std::vector<std::string>& arguments);

}  // namespace millrace::cli
