#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace millrace::cli {

std::string man_page(const CLI::App& program);

/// A bash script that completes commands, options, their named values, and for --set the config
/// keys with their named values: a table of the words that may follow others, an awk program that
/// looks words up in it, and a function that calls it.
std::string completion(const CLI::App& program);

}  // namespace millrace::cli
