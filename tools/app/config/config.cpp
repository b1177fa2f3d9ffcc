#include "tools/app/config/config.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "io/source/source.h"
#include "io/text/nearest_name.h"
#include "tools/app/alerts/channels.h"
#include "tools/app/config/config_keys.h"
#include "tools/app/config/deep_key.h"
#include "tools/app/plugins/plugins.h"

namespace millrace::app {
namespace {

// Read first, since other keys may name types that plug-ins add.
constexpr char kPlugins[] = "plugins";
constexpr char kNoFile[] = "(default)";  // Config::name
constexpr std::size_t kMostBytes = 4 << 20;

std::string place(const std::string& name, const toml::source_region& region) {
  return name + ":" + std::to_string(region.begin.line) + ":" + std::to_string(region.begin.column);
}

const ConfigKey* find_key(std::string_view path) {
  const auto& keys = config_keys();
  const auto found = std::ranges::find(keys, path, &ConfigKey::path);
  return found == keys.end() ? nullptr : &*found;
}

/// The key with the fewest edits to `path`. If that is uncertain, the one with the same meaning:
/// optimizer.lr for optimizer.learning_rate.
std::string nearest_key(const std::string& path) {
  std::vector<std::string_view> names = {"model.layer"};
  for (const ConfigKey& key : config_keys()) names.push_back(key.path);
  const std::string nearest = io::nearest_name(path, names);
  const std::size_t dot = path.rfind('.') + 1;  // npos + 1 is 0
  std::string words = path.substr(dot);
  if (words.empty() || 2 * io::edit_distance(path, nearest) <= words.size()) return nearest;
  std::replace(words.begin(), words.end(), '_', ' ');
  for (const ConfigKey& key : config_keys()) {
    const bool named = dot == 0 && key.path.ends_with("." + words);
    const bool meant = key.path.starts_with(path.substr(0, dot)) && key.meaning.starts_with(words);
    if (named || meant) return key.path;
  }
  return nearest;
}

std::string nearest_table(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ConfigKey& key : config_keys()) {
    const std::size_t dot = key.path.find('.');
    if (dot != std::string::npos) names.push_back(std::string_view(key.path).substr(0, dot));
  }
  return io::nearest_name(name, names);
}

void set_layers(Config& config, const toml::node& value, const std::string& where) {
  const toml::array* list = value.as_array();
  if (!list)
    throw ConfigError(where + ": model.layer must be a list of tables, written [[model.layer]]");
  config.model.layer.clear();
  for (const toml::node& item : *list) {
    const std::string which = "model.layer[" + std::to_string(config.model.layer.size()) + "]";
    // Each layer has its own line in a file, but not in --set.
    const std::string at = where.starts_with("--set") ? where : place(config.name, item.source());
    if (!item.is_table()) throw ConfigError(at + ": " + which + " must be a table");
    config.places[which] = at;
    try {
      config.model.layer.push_back(read_layer(*item.as_table()));
    } catch (const std::invalid_argument& error) {
      throw ConfigError(at + ": " + which + ": " + error.what());
    }
  }
}

/// A value as TOML, shortened for a one-line error.
std::string on_one_line(const toml::node& value) {
  constexpr std::size_t kLongest = 120;
  std::ostringstream out;
  value.visit([&](const auto& node) { out << node; });
  std::string text = out.str();
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return text.size() > kLongest ? text.substr(0, kLongest) + "..." : text;
}

/// The system would end a text at a NUL.
bool holds_nul(const toml::node& value) {
  if (const auto* const text = value.as_string())
    return text->get().find('\0') != std::string::npos;
  if (const auto* const list = value.as_array()) return std::ranges::any_of(*list, holds_nul);
  return false;
}

void set_key(Config& config, const std::string& path, const toml::node& value,
             const std::string& where) {
  config.places[path] = where;
  if (holds_nul(value)) throw config.error(path, "holds a NUL character");
  if (path == "model.layer") return set_layers(config, value, where);
  const ConfigKey* key = find_key(path);
  if (!key)
    throw ConfigError(where + ": unknown key " + path + "; the nearest is " + nearest_key(path));
  try {
    if (!key->set(config, value)) {
      throw ConfigError((where == "--set " + path ? where + ": " : where + ": " + path + " = ") +
                        on_one_line(value) + ": must be " + key->may_hold(config));
    }
    if (path == kPlugins)
      for (const std::string& plugin : config.plugins) load_plugin(plugin);
  } catch (const std::invalid_argument& error) {
    throw config.error(path, error.what());
  } catch (const PluginError& error) {
    throw config.error(path, error.what());
  }
}

void apply_file(Config& config, const std::string& text) {
  if (const int line = line_of_deep_key(text))
    throw ConfigError(config.name + ":" + std::to_string(line) + ":1: a key has too many parts");
  toml::table root;
  try {
    root = toml::parse(text, config.name);
  } catch (const toml::parse_error& error) {
    throw ConfigError(place(config.name, error.source()) + ": " + std::string(error.description()));
  }
  config.empty_file = root.empty() && config.name != kNoFile;
  for (const auto& [name, node] : root)
    if (name == kPlugins) set_key(config, kPlugins, node, place(config.name, name.source()));
  for (const auto& [entry, node] : root) {
    if (entry == kPlugins) continue;
    const std::string name(entry.str()), nearest = nearest_table(name);
    const std::string at = place(config.name, entry.source());
    const toml::table* table = node.as_table();
    if (nearest == name && !table)
      throw ConfigError(at + ": " + name + " must be a table, written [" + name + "]");
    if (nearest != name)
      throw ConfigError(at + ": unknown table [" + name + "]; the nearest is [" + nearest + "]");
    for (const auto& [key, value] : *table)
      set_key(config, name + "." + std::string(key.str()), value, place(config.name, key.source()));
  }
}

}  // namespace

void apply_setting(Config& config, const std::string& setting) {
  const std::size_t equals = setting.find('=');
  if (equals == std::string::npos)
    throw ConfigError("--set " + setting +
                      ": must name a key and its value, as in optimizer.lr=0.1");
  config.set(setting.substr(0, equals), setting.substr(equals + 1));
}

void Config::set(const std::string& key, const std::string& value) {
  const std::string where = "--set " + key;
  const std::size_t tables = std::min(value.size(), value.find('{'));
  if (line_of_deep_key(value.substr(tables)))
    throw ConfigError(where + ": a key has too many parts");
  toml::table parsed;
  try {
    parsed = toml::parse("v = " + value);
    if (parsed.size() != 1) throw ConfigError(where + ": must be one value");
  } catch (const toml::parse_error&) {
    parsed.insert_or_assign("v", value);  // a bare word is a string
  }
  set_key(*this, key, *parsed.get("v"), where);
}

Config settled(Config config) {
  const auto require = [&](const char* key, const std::string& wrong) {
    if (!wrong.empty()) throw config.error(key, wrong);
  };
  const auto if_any = [](const std::string& text, std::string (*wrong)(const std::string&)) {
    return text.empty() ? "" : wrong(text);
  };
  for (const std::string& uri : config.source.uris) require("source.uris", io::scheme_error(uri));
  if (!config.source.uris.empty()) config.source.uri = config.source.uris.front();
  require("source.uri", io::scheme_error(config.source.uri));
  require("task.stream", if_any(config.task.stream, io::scheme_error));
  require("novelty.webhook", if_any(config.novelty.webhook, webhook_error));
  require("novelty.mqtt", if_any(config.novelty.mqtt, mqtt_error));
  require("mqtt.broker", if_any(config.mqtt.broker, mqtt_error));
  require("novelty.topic", topic_error(config.novelty.topic));
  require("mqtt.topic_prefix", topic_error(config.mqtt.topic_prefix));
  require("mqtt.discovery_prefix", if_any(config.mqtt.discovery_prefix, topic_error));
  require_zones(config, config.source.width, config.source.height);
  if (!config.places.contains("model.out_channels"))
    config.model.out_channels = config.source.channels;
  if (config.model.preset == "layers" && config.model.layer.empty())
    throw config.error("model.preset", "\"layers\" needs at least one [[model.layer]]");
  if (config.model.preset != "layers" && !config.model.layer.empty())
    throw config.error("model.layer", "is read only with preset = \"layers\"");
  const std::string& replay = config.replay.kind;
  const bool remembers = replay == "ridge" || (replay == "auto" && config.task.kind == "label");
  if ((remembers || replay == "auto" || replay == "none") && !is_default(config, "replay.share"))
    throw config.error("replay.share", "needs replay.kind: recent, reservoir or hard");
  if (!remembers && (replay == "auto" || replay == "none") && !is_default(config, "replay.size"))
    throw config.error("replay.size", "needs replay.kind");
  if ((config.model.preset == "file") == config.model.file.empty()) {
    throw config.model.file.empty()
        ? config.error("model.preset",
                       "\"file\" needs model.file, written by python -m millrace.export")
        : config.error("model.file", "is read only with preset = \"file\"");
  }
  if (config.checkpoint.dir.empty() && (config.checkpoint.every > 0 || config.checkpoint.resume)) {
    const char* key = config.checkpoint.every > 0 ? "checkpoint.every" : "checkpoint.resume";
    throw config.error(key, "needs checkpoint.dir");
  }
  return config;
}

void require_zones(const Config& config, int width, int height) {
  for (const auto& [key, zones] : {std::pair{"novelty.zones", &config.novelty.zones},
                                   std::pair{"novelty.ignore", &config.novelty.ignore}})
    for (const Zone& zone : *zones)
      if (const std::string wrong = zone_error(zone, width, height); !wrong.empty())
        throw config.error(key, wrong);
}

ConfigError Config::error(const std::string& key, const std::string& what) const {
  const auto found = places.find(key);
  const std::string& at = found == places.end() ? name : found->second;
  return ConfigError(at + (at == "--set " + key ? ": " : ": " + key + ": ") + what);
}

Config parse_config(const std::string& text, const std::string& name,
                    const std::vector<std::string>& settings) {
  Config config;
  config.name = name;
  for (const std::string& setting : settings)
    if (setting.starts_with("plugins=")) apply_setting(config, setting);
  apply_file(config, text);
  for (const std::string& setting : settings) apply_setting(config, setting);
  return settled(std::move(config));
}

std::vector<std::string> classes_in(const std::string& text) {
  std::vector<std::string> classes;
  try {
    const toml::table root = toml::parse(text);
    if (const toml::array* const named = root["task"]["classes"].as_array())
      for (const toml::node& one : *named) classes.push_back(one.value_or(std::string()));
  } catch (const toml::parse_error&) {
  }
  return classes;
}

Config load_config(const std::string& path, const std::vector<std::string>& settings) {
  if (path.empty()) return parse_config("", kNoFile, settings);
  if (std::filesystem::is_directory(path))
    throw ConfigError(path + ": is a folder; images:" + path + " is the pictures in it");
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  file.read(text.data(), std::streamsize(text.size()));
  if (!file.eof() && file.gcount() <= std::streamsize(kMostBytes))
    throw ConfigError(path + ": cannot be read");
  if (!file.eof()) throw ConfigError(path + ": is larger than 4 MiB: not a config");
  text.resize(std::size_t(file.gcount()));
  return parse_config(text, path, settings);
}

bool names_a_source(const std::string& argument) {
  if (argument.find(':') != std::string::npos && io::scheme_error(argument).empty()) return true;
  const std::filesystem::path path(argument);
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  return !argument.empty() && path.extension() != ".toml" &&
         (std::filesystem::is_regular_file(status) || !std::filesystem::exists(status));
}

bool names_source(const Config& config) {
  return config.places.contains("source.uri") || config.places.contains("source.uris");
}

std::string text_setting(const std::string& key, const std::string& text) {
  const std::string value = value_text(text);
  const bool told = toml::parse("v = " + value)["v"].value<std::string>() == text;
  return key + "=" + (told ? value : text);  // or as a bare word
}

Config load_argument(const std::string& argument, std::vector<std::string> settings) {
  if (!names_a_source(argument)) return load_config(argument, settings);
  for (const ConfigKey& key : config_keys())
    if (argument.starts_with(key.path + "="))
      throw ConfigError(argument + " is no file: a key is set by --set " + argument);
  settings.insert(settings.begin(), text_setting("source.uri", argument));
  return load_config("", settings);
}

std::string to_toml(Config config) {
  for (std::string* const uri :
       {&config.source.uri, &config.task.stream, &config.output.video, &config.novelty.webhook,
        &config.novelty.mqtt, &config.mqtt.broker})
    *uri = io::redacted(*uri);
  for (std::string& uri : config.source.uris) uri = io::redacted(uri);
  std::ostringstream out;
  std::string table;
  for (const ConfigKey& key : config_keys()) {
    const std::size_t dot = key.path.find('.');
    if (dot == std::string::npos) {
      out << key.path << " = " << key.show(config) << "\n\n";
      continue;
    }
    const std::string name = key.path.substr(0, dot);
    if (name != table) out << (table.empty() ? "" : "\n") << "[" << (table = name) << "]\n";
    out << key.path.substr(dot + 1) << " = " << key.show(config) << "\n";
  }
  for (const stages::LayerSpec& layer : config.model.layer) out << "\n" << layer_toml(layer);
  return out.str();
}

bool is_default(const Config& config, const std::string& key) {
  const ConfigKey* const found = find_key(key);
  return found->show(config) == found->show(Config());
}

std::vector<Difference> differences(const Config& before, const Config& after) {
  std::vector<Difference> all;
  for (const ConfigKey& key : config_keys()) {
    Difference difference{key.path, key.show(before), key.show(after)};
    const bool set = before.places.contains(key.path) != after.places.contains(key.path);
    if (set || difference.before != difference.after) all.push_back(std::move(difference));
  }
  if (before.model.layer != after.model.layer) all.push_back({"model.layer", "", ""});
  return all;
}

std::vector<KeyEntry> key_entries() {
  Config defaults;
  std::vector<KeyEntry> entries;
  for (const ConfigKey& key : config_keys()) {
    std::vector<std::string> choices = key.range.choices;
    if (choices.empty() && std::holds_alternative<bool*>(key.at(defaults)))
      choices = {"true", "false"};
    entries.push_back({key.path, key.show(defaults), key.meaning, key.may_hold(defaults), choices});
  }
  return entries;
}

std::string describe_keys() {
  std::string text;
  for (const KeyEntry& key : key_entries())
    text +=
        key.path + " = " + key.default_text + "\n    " + key.meaning + "\n    " + key.range + "\n";
  return text;
}

}  // namespace millrace::app
