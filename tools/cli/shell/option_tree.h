// The command line as plain data, for whoever writes about it.
#pragma once

#include <string>  // names
#include <vector>  // lists

namespace CLI {
class App;  // costly to include
}

namespace millrace::cli {

/// An option, a flag or a positional.
struct OptionEntry {
  std::vector<std::string> names;  ///< "-h", "--help"; a positional has its one name, undashed
  bool positional = false;
  bool required = false;
  std::string value;                 ///< "TEXT", "INT", "FLOAT"; "" of a flag
  std::string range;                 ///< "0 to 4096"; or empty
  std::vector<std::string> choices;  ///< all values there are; empty: any
  std::string meaning;

  bool takes_path() const { return value == "TEXT" && choices.empty(); }
  bool sets_key() const { return !positional && names.back() == "--set"; }
};

struct CommandEntry {
  std::string name;
  std::string meaning;
  std::vector<OptionEntry> options;
  std::string names;  ///< what its help ends with: a title and a line a name; or empty
};

/// A key of a config.
struct KeyEntry {
  std::string path;          ///< "source.width"
  std::string default_text;  ///< as TOML
  std::string meaning;
  std::string range;
  std::vector<std::string> choices;  ///< named values, as bare words; empty: none are named
};

struct OptionTree {
  std::string version;
  std::string meaning;
  std::vector<OptionEntry> options;  ///< of the program itself
  std::vector<CommandEntry> commands;
  std::vector<KeyEntry> keys;
};

/// `keys`: as describe_keys() writes them.
OptionTree read_option_tree(const CLI::App& app, const std::string& keys);

/// With spaces between them.
std::string joined(const std::vector<std::string>& words);

}  // namespace millrace::cli
