// What the command line and a config take, as a man page and as completion for shells.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "stages/model_spec.h"
#include "tools/app/config/config.h"

namespace millrace::cli {

/// The man page, as roff.
std::string man_page(const CLI::App& program, const std::vector<app::KeyEntry>& keys,
                     const std::vector<stages::LayerType>& layers);

/// A script for "bash", "zsh" or "fish" to read: commands, options, their named values, and for
/// --set every key of a config with its named values.
std::string completion(const CLI::App& program, const std::vector<app::KeyEntry>& keys,
                       const std::string& shell);

/// "-f" and "--format"; of a positional argument its one name.
std::vector<std::string> names_of(const CLI::Option& option);
/// The words that its value must be one of; empty: any.
std::vector<std::string> choices_of(const CLI::Option& option);

}  // namespace millrace::cli
