// What the command line takes, as a man page and as completion for shells.
#pragma once

#include <string>  // texts

#include "tools/cli/shell/option_tree.h"

namespace millrace::cli {

/// Gives `app` the options --man and --completion SHELL, which print their text and end the
/// program. After all else was added. `keys`: describe_keys(), `layers`: describe_layers(); both
/// are asked for only then.
void add_option_text(CLI::App& app, std::string (*keys)(), std::string (*layers)());

/// The man page, as roff.
std::string man_page(const OptionTree& tree, const std::string& layers);

/// A script for "bash", "zsh" or "fish" to read: commands, options, the values of those that name
/// them, and for --set every key of a config with its values.
std::string completion(const OptionTree& tree, const std::string& shell);

}  // namespace millrace::cli
