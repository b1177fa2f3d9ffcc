// What the command line and a config take, as a man page and as completion for shells.
#pragma once

#include <string>
#include <vector>

#include "stages/model_spec.h"
#include "tools/app/config/config.h"
#include "tools/cli/options.h"

namespace millrace::cli {

/// The man page, as roff.
std::string man_page(const Program& program, const std::vector<app::KeyEntry>& keys,
                     const std::vector<stages::LayerType>& layers);

/// A script for "bash", "zsh" or "fish" to read: commands, options, their named values, and for
/// --set every key of a config with its named values.
std::string completion(const Program& program, const std::vector<app::KeyEntry>& keys,
                       const std::string& shell);

}  // namespace millrace::cli
