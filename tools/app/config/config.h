// The config file, overridden by --set. Needs no LibTorch.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/schedule/schedule.h"
#include "stages/model_spec.h"
#include "stages/training_spec.h"
#include "tools/app/events/event.h"

namespace millrace::app {

/// An unusable config. The message begins with the place, "FILE:LINE:COL: " or "--set KEY: ".
struct ConfigError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// All config keys with their defaults. config_keys.cpp has their ranges.
struct Config {
  std::vector<std::string> plugins;  ///< loaded as soon as they are set
  struct {
    std::string uri = "file:///usr/share/doc/opencv-doc/examples/data/vtest.avi";
    std::vector<std::string> uris;  ///< one per copy of the pipeline; empty: one copy, of `uri`
    std::string pace = "auto";
    std::string drop = "auto";
    int width = 128;
    int height = 96;
    std::string fit = "stretch";
    std::vector<int> roi;  ///< x, y, width, height; empty: the whole picture
    int channels = 3;
    double fps = 0.0;
    bool loop = false;
    std::uint64_t seed = 0;
    bool reconnect = true;
    double silence_s = 2.5;
    std::int64_t max_pixels = 7680 * 4320;
  } source;
  struct {
    std::string kind = "next-frame";
    stages::LossSpec loss;
    int horizon = 1;
    int context = 2;
    std::string predict = "auto";
    std::string labels;
    std::vector<std::string> classes;
    std::string masks;
    std::string stream;
    std::string teacher;
    bool with_input = false;
  } task;
  stages::ModelSpec model{.preset = "auto", .layers = 4, .features = 32, .kernel = 3};
  struct {
    std::string file;
    std::uint64_t seed = 0;
    bool learn = true;
  } weights;  ///< model.weights, model.seed, model.learn
  struct : engine::ScheduleSpec {
    std::vector<int> cut;
    std::vector<std::string> devices = {"auto"};
    std::vector<int> threads = {1};  ///< per stage, or one number for all; 0: chosen at start
    std::string capture = "auto", convolution = "accurate", precision = "float32",
                kernels = "tuned";
    std::vector<int> ranks;  ///< one per worker; empty: assigned in order
    int tensor = 1;          ///< ranks that share each worker's modules
  } pipeline;
  stages::OptimizerSpec optimizer{.kind = "adam", .lr = 0.001};
  stages::CorrectionSpec correction{.kind = "auto"};
  struct {
    std::string kind = "roll-back";
  } guard;
  struct {
    std::string kind = "auto";
    int size = 256;
    double share = -1;  ///< below 0: "auto"
  } replay;
  struct {
    double fps = 0.0;
    std::string policy = "drop";
  } monitor;
  struct {
    double threshold = 0.0;
    std::int64_t minimum = 3;
    double cooldown = 0.0;
    std::vector<std::string> reasons{std::begin(kReasonNames), std::end(kReasonNames)};
    std::vector<Zone> zones, ignore;
    std::string snapshots;
    double clip_seconds = 0.0;
    std::string webhook;
    std::string mqtt;
    std::string topic = "millrace/unexpected";
  } novelty;
  struct {
    std::string broker;
    std::string topic_prefix = "millrace";
    std::string discovery_prefix = "homeassistant";
  } mqtt;
  struct {
    std::string dir;
    std::int64_t every = 0;
    bool resume = false;
    std::string damaged = "set-aside";
  } checkpoint;
  struct {
    std::string report;
    std::string weights;
    std::string loss_plot;
    std::string prediction;
    std::string video;
    std::string log;
    std::int64_t log_every = 100;
    std::vector<std::string> sinks;
  } output;

  std::map<std::string, std::string> places;  ///< where each key was set
  std::string name;         ///< file name, for errors about keys that were not set
  bool empty_file = false;  ///< the file exists and sets no key

  /// Sets "table.key" to `value`, in TOML's syntax; a bare word is a string. Throws ConfigError.
  void set(const std::string& key, const std::string& value);
  ConfigError error(const std::string& key, const std::string& what) const;
};

/// Applies "table.key=value". Throws ConfigError.
void apply_setting(Config& config, const std::string& setting);

/// Reads `path` ("": defaults only), then applies `settings` ("table.key=value") in order. Throws
/// ConfigError at the first fault. All values of the result are in range.
Config load_config(const std::string& path, const std::vector<std::string>& settings);

/// Whether a command's argument names a source rather than a config file: it is a URI, or a file
/// not called *.toml. Pipes and devices are configs.
bool names_a_source(const std::string& argument);
bool names_source(const Config& config);
/// The named config file, or the defaults with that source.
Config load_argument(const std::string& argument, std::vector<std::string> settings);

Config parse_config(const std::string& text, const std::string& name,
                    const std::vector<std::string>& settings);

/// task.classes of a config that another run left; {} if it has none. Loads no plug-in it names.
std::vector<std::string> classes_in(const std::string& text);

/// Resolves keys that depend on one another, as load_config() does. Throws ConfigError.
Config settled(Config config);
/// Throws ConfigError unless the zones fit a picture of that size; 0: unknown.
void require_zones(const Config& config, int width, int height);

std::string to_toml(Config config);

std::string value_text(const std::string& text);
/// "KEY=TEXT" for apply_setting(). The name of a file need not be UTF-8, as TOML must be.
std::string text_setting(const std::string& key, const std::string& text);

bool is_default(const Config& config, const std::string& key);

/// A key whose values, as TOML, differ between two configs, or that one of them leaves open.
struct Difference {
  std::string key, before, after;
};
/// In key order; model.layer without values.
std::vector<Difference> differences(const Config& before, const Config& after);

struct KeyEntry {
  std::string path;          ///< "source.width"
  std::string default_text;  ///< as TOML
  std::string meaning, range;
  std::vector<std::string> choices;  ///< named values, as bare words; empty: none
};
std::vector<KeyEntry> key_entries();

std::string describe_keys();
std::string describe_layers();

}  // namespace millrace::app
