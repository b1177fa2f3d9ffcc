#include "tools/cli/shell/option_tree.h"

#include <CLI/CLI.hpp>  // what is read

#include <sstream>      // lines
#include <string_view>  // pieces

namespace millrace::cli {
namespace {

/// "a,b,c" in parts.
std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

/// What stands between `open` and the next `close`; "" if nothing does.
std::string between(const std::string& text, std::string_view open, std::string_view close) {
  const std::size_t start = text.find(open);
  if (start == text.npos) return "";
  const std::size_t begin = start + open.size(), end = text.find(close, begin);
  return end == text.npos ? "" : text.substr(begin, end - begin);
}

OptionEntry read_option(const CLI::Option& option) {
  OptionEntry entry;
  entry.positional = option.get_positional() && !option.nonpositional();
  if (entry.positional) entry.names.push_back(option.get_name(true));
  for (const std::string& name : option.get_snames()) entry.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) entry.names.push_back("--" + name);
  entry.required = option.get_required();
  entry.meaning = option.get_description();
  if (option.get_items_expected_max() == 0) return entry;
  // "TEXT", "TEXT:{a,b}", "INT:INT in [0 - 9]": the type, then what checks say of themselves.
  const std::string type = option.get_type_name();
  entry.value = type.substr(0, type.find(':'));
  entry.choices = split(between(type, ":{", "}"));
  entry.range = between(type, " in [", "]");
  const std::size_t dash = entry.range.find(" - ");
  if (dash != entry.range.npos) entry.range.replace(dash, 3, " to ");
  return entry;
}

std::vector<OptionEntry> read_options(const CLI::App& app) {
  std::vector<OptionEntry> entries;
  for (const CLI::Option* option : app.get_options()) entries.push_back(read_option(*option));
  return entries;
}

/// Of "one of 'a', 'b' or a file" the names; of "true or false" both.
std::vector<std::string> choices_of(const std::string& range) {
  if (range == "true or false") return {"true", "false"};
  std::vector<std::string> choices;
  if (!range.starts_with("one of ")) return choices;
  for (std::size_t at = range.find('\''); at != range.npos;) {
    const std::size_t end = range.find('\'', at + 1);
    if (end == range.npos) break;
    choices.push_back(range.substr(at + 1, end - at - 1));
    at = range.find('\'', end + 1);
  }
  return choices;
}

std::vector<KeyEntry> read_keys(const std::string& text) {
  std::vector<KeyEntry> keys;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    KeyEntry key;
    const std::size_t equals = line.find(" = ");
    if (equals == line.npos) continue;
    key.path = line.substr(0, equals);
    key.default_text = line.substr(equals + 3);
    std::getline(in >> std::ws, key.meaning);
    std::getline(in >> std::ws, key.range);
    key.choices = choices_of(key.range);
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

OptionTree read_option_tree(const CLI::App& app, const std::string& keys) {
  OptionTree tree{.version = app.version(),
                  .meaning = app.get_description(),
                  .options = read_options(app),
                  .commands = {},
                  .keys = read_keys(keys)};
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    tree.commands.push_back({command->get_name(), command->get_description(),
                             read_options(*command), command->get_footer()});
  // A check that also takes files can't list its names; they are a key's as well.
  for (const KeyEntry& key : tree.keys) {
    if (key.path != "pipeline.schedule") continue;
    for (CommandEntry& command : tree.commands) {
      for (OptionEntry& option : command.options) {
        if (command.name == "schedule" && option.positional && option.choices.empty())
          option.choices = key.choices;
      }
    }
  }
  return tree;
}

}  // namespace millrace::cli
