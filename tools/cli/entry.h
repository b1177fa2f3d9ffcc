// How a program of Millrace ends: exit codes, and one line for what went wrong.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace millrace::cli {

/// The exit codes users' scripts rely on.
enum ExitCode { kDone = 0, kRunFailed = 1, kBadUsage = 2, kNoSource = 3 };

/// One line on stderr: "millrace: error: WHAT". Returns `code`.
int fail(ExitCode code, const std::string& what);

/// Calls `program`; exceptions become a line and an exit code.
int run_program(const std::function<int()>& program);

/// Parses the command line, then calls `run`. Prints help; usage errors become a line.
int parse_and_run(CLI::App& app, int argc, char** argv, const std::function<int()>& run);

/// What an argument may name, for the end of a command's help: a line each.
std::string name_list(const std::string& title,
                      const std::vector<std::pair<std::string, std::string>>& names);

}  // namespace millrace::cli
