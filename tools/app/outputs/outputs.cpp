#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "engine/schedule/schedule.h"
#include "engine/schedule/schedule_csv.h"
#include "io/files/whole_file.h"
#include "io/source/source.h"
#include "io/source/source_images.h"
#include "io/source/uri.h"
#include "io/video/video_writer.h"
#include "tools/app/assembly.h"
#include "tools/app/checkpoint_files.h"

namespace millrace::app {
namespace {

namespace fs = std::filesystem;

/// "" if a temporary of the file `name` can be created in `folder`, else why not.
std::string trial(const fs::path& folder, std::string name) {
  name = (folder / (name + ".tmp.0000XXXXXX")).string();
  const int file = ::mkstemp(name.data());
  if (file < 0) return std::strerror(errno);
  ::close(file);
  ::unlink(name.c_str());
  return "";
}

/// "" if `path` can be created or overwritten, as a folder if `folder`; otherwise why not.
std::string obstacle(const std::string& path, bool folder) {
  std::error_code ignored;
  const fs::file_status there = fs::status(path, ignored);
  if (ignored == std::errc::filename_too_long ||
      ignored == std::errc::too_many_symbolic_link_levels)
    return ignored.message();
  if (!folder && fs::is_directory(there)) return std::strerror(EISDIR);
  if (folder && fs::exists(there) && !fs::is_directory(there)) return std::strerror(ENOTDIR);
  if (fs::exists(there) && !fs::is_directory(there) && !fs::is_regular_file(there))
    return access(path.c_str(), W_OK) == 0 ? "" : std::strerror(errno);  // a device, a pipe
  // Files are replaced by renaming, so their folder, or its nearest ancestor, must be writable.
  fs::path above = fs::absolute(io::behind_links(path), ignored);
  const std::string name = folder ? "millrace" : above.filename().string();
  if (!folder || !fs::exists(there)) above = above.parent_path();
  while (!fs::exists(above, ignored) && above.has_relative_path()) {
    if (ignored == std::errc::not_a_directory) break;
    above = above.parent_path();
  }
  return fs::is_directory(above, ignored) ? trial(above, name) : std::strerror(ENOTDIR);
}

/// "" unless the path has another format's extension.
std::string wrong_ending(const std::string& key, const std::string& path) {
  std::string ending = fs::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  const bool picture = key == "output.loss_plot" || key == "output.prediction";
  if (picture && !ending.empty() && ending != ".png") return "is a PNG: call it FILE.png";
  static const std::set<std::string> other = {".pt",  ".pth", ".onnx", ".png",
                                              ".mp4", ".mkv", ".json", ".jsonl"};
  if (key == "output.weights" && other.count(ending) > 0)
    return "is safetensors: call it FILE.safetensors";
  return key == "output.video" ? io::video_target_error(path) : "";
}

struct Named {
  std::string key, path;
};

bool is_uri(const std::string& path) {
  return path.find("://") != std::string::npos;
}

std::vector<Named> outputs_of(const Config& config, const std::string& trace) {
  const auto& output = config.output;
  std::vector<Named> all = {{"output.report", output.report},
                            {"output.weights", output.weights},
                            {"output.loss_plot", output.loss_plot},
                            {"output.prediction", output.prediction},
                            {"output.log", output.log},
                            {"output.video", output.video},
                            {"--trace", trace}};
  std::erase_if(all, [](const Named& one) {
    return one.path.empty() || (one.key == "output.log" && one.path == "-");
  });
  return all;
}

std::vector<Named> inputs_of(const Config& config) {
  std::vector<Named> all = {{"the config", config.name},
                            {"task.labels", config.task.labels},
                            {"task.teacher", config.task.teacher},
                            {"model.file", config.model.file}};
  const auto add_source = [&](const char* key, const std::string& uri) {
    const io::Uri parts = io::split_uri(uri);
    if (parts.is_file()) all.push_back({key, io::file_path(parts)});
  };
  add_source("source.uri", config.source.uri);
  for (const std::string& uri : config.source.uris) add_source("source.uris", uri);
  add_source("task.stream", config.task.stream);
  for (const std::string& plugin : config.plugins) all.push_back({"plugins", plugin});
  if (engine::is_schedule_file(config.pipeline.schedule))
    all.push_back({"pipeline.schedule", config.pipeline.schedule});
  return all;
}

bool is_read(const Config& config, const std::string& path) {
  std::error_code error;
  const io::Uri source = io::split_uri(config.source.uri);
  if (source.scheme != "images" || !fs::exists(path, error)) return false;
  const bool numbered = source.rest.find('%') != std::string::npos;
  const std::string all =
      numbered ? ("." / fs::path(source.rest).parent_path()).string() : source.rest;
  return std::ranges::any_of(io::list_pictures(all), [&](const std::string& picture) {
    return fs::equivalent(picture, path, error);
  });
}

[[noreturn]] void refuse(const Config& config, const std::string& key, const std::string& what) {
  if (key.starts_with("--")) throw ConfigError(key + ": " + what);
  throw config.error(key, what);
}

/// Refuses outputs that share a file. Weights may replace the initial ones.
void require_apart(const Config& config, const std::vector<Named>& outputs) {
  std::vector<Named> taken = inputs_of(config);
  if (!config.checkpoint.dir.empty())
    for (const char* name : {CheckpointFiles::kNewest, CheckpointFiles::kPrevious})
      taken.push_back({"checkpoint.dir", config.checkpoint.dir + "/" + name});
  for (const Named& output : outputs) {
    if (is_uri(output.path)) continue;
    for (const Named& other : taken)
      if (!other.path.empty() && io::same_file(output.path, other.path))
        refuse(config, output.key, output.path + ": is the file of " + other.key);
    if (is_read(config, output.path))
      refuse(config, output.key, output.path + ": is a picture of source.uri");
    const bool start = !config.weights.file.empty() && output.key != "output.weights";
    if (start && io::same_file(output.path, config.weights.file))
      refuse(config, output.key, output.path + ": is the file of model.weights");
    taken.push_back(output);
    if (output.key == "output.video") taken.push_back({output.key, output.path + ".part"});
  }
}

}  // namespace

void require_outputs(const Config& config, const std::string& trace) {
  const std::vector<Named> outputs = outputs_of(config, trace);
  for (const auto& [key, path] : outputs) {
    const std::string wrong = wrong_ending(key, path);
    const std::string why = wrong.empty() && !is_uri(path) ? obstacle(path, false) : wrong;
    if (!why.empty()) refuse(config, key, path + ": " + why);
  }
  for (const auto& [key, path] : {std::pair{"checkpoint.dir", config.checkpoint.dir},
                                  std::pair{"novelty.snapshots", config.novelty.snapshots}}) {
    const std::string why = path.empty() ? "" : obstacle(path, true);
    if (!why.empty()) refuse(config, key, path + ": " + why);
  }
  require_apart(config, outputs);
}

void require_writable(const std::string& path) {
  const std::string why = obstacle(path, false);
  if (!why.empty()) throw ConfigError(path + ": " + why);
}

}  // namespace millrace::app
