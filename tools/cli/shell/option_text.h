#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "stages/model_spec.h"
#include "tools/app/config/config.h"

namespace millrace::cli {

std::string man_page(const CLI::App& program, const std::vector<app::KeyEntry>& keys,
                     const std::vector<stages::LayerType>& layers);

/// A bash script that completes commands, options, their named values, and for --set the config
/// keys with their named values.
std::string completion(const CLI::App& program, const std::vector<app::KeyEntry>& keys);

/// "-f" and "--format"; for a positional argument, its one name.
std::vector<std::string> names_of(const CLI::Option& option);
/// Allowed values; empty: any.
std::vector<std::string> choices_of(const CLI::Option& option);

}  // namespace millrace::cli
