// How a program of Millrace ends: exit codes, and one line for what went wrong.
#pragma once

#include <functional>
#include <string>

namespace millrace::cli {

/// The exit codes users' scripts rely on.
enum ExitCode { kDone = 0, kRunFailed = 1, kBadUsage = 2, kNoSource = 3 };

/// Prints "millrace: error: WHAT" as one line on stderr. Returns `code`.
int fail(ExitCode code, const std::string& what);

/// Calls `program`; exceptions become a line and an exit code.
int run_program(const std::function<int()>& program);

}  // namespace millrace::cli
