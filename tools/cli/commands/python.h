#pragma once

#include <string>
#include <vector>

namespace millrace::cli {

/// Replaces this program by Python with these arguments. `asker`: the command or option in error
/// messages. Throws std::runtime_error if Python can't be started.
[[noreturn]] void become_python(const std::string& asker, std::vector<std::string> words);

/// The same: main() of millrace._`module` with `arguments`, its result as exit code.
[[noreturn]] void run_python(const std::string& asker, const std::string& module,
                             const std::vector<std::string>& arguments);

}  // namespace millrace::cli
