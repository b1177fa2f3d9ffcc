#include "tools/app/outputs/outputs.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
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
  name += ".tmp.0000XXXXXX";
  // What has no name is not left behind by a signal. Not every file system has that.
  const int unnamed =
      name.size() > NAME_MAX ? -1 : ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (unnamed >= 0) return ::close(unnamed), "";
  name = (folder / name).string();
  const int file = ::mkstemp(name.data());
  if (file < 0) return std::strerror(errno);
  ::close(file);
  ::unlink(name.c_str());
  return "";
}

/// "" if `path` can be created or overwritten, as a folder if `folder`; otherwise why not.
std::string obstacle(const std::string& path, bool folder) {
  if (!folder && io::standard_stream(path) >= 0) return "";
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

bool is_uri(const std::string& path) {
  return path.find("://") != std::string::npos;
}

/// The extensions of each output, the usual one first; "": of files that are only read.
const std::map<std::string_view, std::vector<std::string_view>> kEndings = {
    {"output.report", {".json", ".txt"}},
    {"output.weights", {".safetensors"}},
    {"output.loss_plot", {".png"}},
    {"output.prediction", {".png"}},
    {"output.video", {".mp4", ".mkv"}},
    {"output.log", {".jsonl", ".json", ".txt"}},
    {"--trace", {".json", ".txt"}},
    {"--json", {".json", ".txt"}},
    {"--output", {".toml", ".txt"}},
    {"--plot", {".png"}},
    {"--svg", {".svg"}},
    {"--onnx", {".onnx"}},
    {"",
     {".csv", ".pt", ".pth", ".py", ".so", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff",
      ".webp", ".avi", ".mov", ".webm"}}};

/// "" unless the path has another format's extension.
std::string wrong_ending(const std::string& name, const std::string& path) {
  if (name == "output.video") return io::video_target_error(path);
  std::string ending = fs::path(path).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return char(std::tolower(c)); });
  const auto has = [&](const auto& endings) { return std::ranges::count(endings, ending) > 0; };
  const auto& own = kEndings.at(name);
  const bool known = std::ranges::any_of(kEndings, [&](const auto& of) { return has(of.second); });
  return !known || has(own)
             ? ""
             : "has the extension of another format: call it FILE" + std::string(own.front());
}

/// "" if `path` can be written as the output `name`; otherwise why not.
std::string unfit(const std::string& name, const std::string& path) {
  const std::string wrong = wrong_ending(name, path);
  return wrong.empty() && !is_uri(path) ? obstacle(path, false) : wrong;
}

std::vector<NamedFile> outputs_of(const Config& config, const std::string& trace) {
  const auto& output = config.output;
  std::vector<NamedFile> all = {{"output.report", output.report},
                                {"output.weights", output.weights},
                                {"output.loss_plot", output.loss_plot},
                                {"output.prediction", output.prediction},
                                {"output.log", output.log},
                                {"output.video", output.video},
                                {"--trace", trace}};
  std::erase_if(all, [](const NamedFile& one) { return one.path.empty(); });
  return all;
}

std::vector<std::pair<const char*, io::Uri>> streams_of(const Config& config) {
  std::vector<std::pair<const char*, io::Uri>> all;
  for (const std::string& uri : config.source.uris)
    all.emplace_back("source.uris", io::split_uri(uri));
  all.emplace_back("source.uri", io::split_uri(config.source.uri));
  all.emplace_back("task.stream", io::split_uri(config.task.stream));
  return all;
}

std::vector<NamedFile> inputs_of(const Config& config) {
  std::vector<NamedFile> all = {{"model.weights", config.weights.file},
                                {"the config", config.name},
                                {"task.labels", told_live(config) ? "" : config.task.labels},
                                {"task.teacher", config.task.teacher},
                                {"model.file", config.model.file}};
  for (const auto& [key, uri] : streams_of(config))
    if (uri.is_file()) all.push_back({key, io::file_path(uri)});
  for (const std::string& plugin : config.plugins) all.push_back({"plugins", plugin});
  if (engine::is_schedule_file(config.pipeline.schedule))
    all.push_back({"pipeline.schedule", config.pipeline.schedule});
  return all;
}

/// The key that names the folder of the picture `path`; "": none.
std::string picture_key(const Config& config, const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return "";
  std::vector<NamedFile> folders;
  if (!config.task.masks.empty()) folders.push_back({"task.masks", config.task.masks});
  for (const auto& [key, uri] : streams_of(config)) {
    if (uri.scheme != "images") continue;
    const bool numbered = uri.rest.find('%') != std::string::npos;
    folders.push_back(
        {key, numbered ? ("." / fs::path(uri.rest).parent_path()).string() : uri.rest});
    for (const auto& [folder, pictures] : io::class_folders(uri.rest))
      folders.push_back({key, folder});
  }
  for (const auto& [key, folder] : folders)
    for (const std::string& picture : io::list_pictures(folder))
      if (fs::equivalent(picture, path, error)) return key;
  return "";
}

[[noreturn]] void refuse(const Config& config, const std::string& key, const std::string& what) {
  if (key.starts_with("--")) throw ConfigError(key + ": " + what);
  throw config.error(key, what);
}

/// Refuses outputs that share a file. Weights may replace the initial ones.
void require_apart(const Config& config, const std::vector<NamedFile>& outputs) {
  std::vector<NamedFile> taken = inputs_of(config);
  if (!config.checkpoint.dir.empty())
    for (const char* name : {CheckpointFiles::kNewest, CheckpointFiles::kPrevious})
      taken.push_back({"checkpoint.dir", config.checkpoint.dir + "/" + name});
  for (const NamedFile& output : outputs) {
    if (is_uri(output.path)) continue;
    for (const NamedFile& other : taken) {
      const bool may = output.name == "output.weights" && other.name == "model.weights";
      if (!may && !other.path.empty() && io::same_file(output.path, other.path))
        refuse(config, output.name, output.path + ": is the file of " + other.name);
    }
    const std::string key = picture_key(config, output.path);
    if (!key.empty()) refuse(config, output.name, output.path + ": is a picture of " + key);
    taken.push_back(output);
    if (output.name == "output.video") taken.push_back({output.name, output.path + ".part"});
  }
}

}  // namespace

void require_outputs(const Config& config, const std::string& trace) {
  const std::vector<NamedFile> outputs = outputs_of(config, trace);
  require_apart(config, outputs);
  for (const auto& [name, path] : outputs)
    if (const std::string why = unfit(name, path); !why.empty())
      refuse(config, name, path + ": " + why);
  for (const auto& [key, path] : {std::pair{"checkpoint.dir", config.checkpoint.dir},
                                  std::pair{"novelty.snapshots", config.novelty.snapshots}}) {
    const std::string why = path.empty() ? "" : obstacle(path, true);
    if (!why.empty()) refuse(config, key, path + ": " + why);
  }
}

bool uses_stdout(const Config& config, const std::string& trace) {
  return std::ranges::any_of(outputs_of(config, trace), [](const NamedFile& output) {
    return io::standard_stream(output.path) == STDOUT_FILENO;
  });
}

void require_other_files(const std::vector<NamedFile>& outputs, std::vector<std::string> inputs) {
  for (const auto& [option, path] : outputs) {
    if (path.empty()) continue;
    for (const std::string& other : inputs)
      if (!other.empty() && io::same_file(path, other))
        throw ConfigError(option + ": " + path + ": would replace " + other);
    if (const std::string why = unfit(option, path); !why.empty())
      throw ConfigError(option + ": " + path + ": " + why);
    inputs.push_back(path);
  }
}

}  // namespace millrace::app
