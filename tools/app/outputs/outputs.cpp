#include "tools/app/outputs/outputs.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <utility>

namespace millrace::app {
namespace {

namespace fs = std::filesystem;

/// "" if `path` can be created or overwritten, else why not. `folder`: as a folder.
std::string obstacle(const std::string& path, bool folder) {
  std::error_code ignored;
  const fs::file_status there = fs::status(path, ignored);
  if (!folder && fs::is_directory(there)) return std::strerror(EISDIR);
  if (fs::exists(there) && !fs::is_directory(there) && !fs::is_regular_file(there))
    return access(path.c_str(), W_OK) == 0 ? "" : std::strerror(errno);  // a device, a pipe
  if (folder && fs::exists(there) && !fs::is_directory(there)) return std::strerror(ENOTDIR);
  // A file is replaced by another one beside it, so its folder must be writable, or the nearest one
  // above that exists.
  fs::path above = fs::absolute(path, ignored);
  if (!folder || !fs::exists(there)) above = above.parent_path();
  while (!fs::exists(above, ignored) && above.has_relative_path()) {
    if (ignored == std::errc::not_a_directory) break;
    above = above.parent_path();
  }
  if (!fs::is_directory(above, ignored)) return std::strerror(ENOTDIR);
  return access(above.c_str(), W_OK | X_OK) == 0 ? "" : std::strerror(errno);
}

}  // namespace

void require_writable(const Config& config) {
  const auto& output = config.output;
  const std::pair<const char*, const std::string&> files[] = {
      {"output.report", output.report},
      {"output.weights", output.weights},
      {"output.loss_plot", output.loss_plot},
      {"output.prediction", output.prediction},
      {"output.log", output.log},
      {"output.video", output.video}};
  for (const auto& [key, path] : files) {
    if (path.empty() || path == "-" || path.find("://") != std::string::npos) continue;
    const std::string why = obstacle(path, false);
    if (!why.empty()) throw config.error(key, path + ": " + why);
  }
  if (config.checkpoint.dir.empty()) return;
  const std::string why = obstacle(config.checkpoint.dir, true);
  if (!why.empty()) throw config.error("checkpoint.dir", config.checkpoint.dir + ": " + why);
}

void require_writable(const std::string& path) {
  const std::string why = obstacle(path, false);
  if (!why.empty()) throw std::invalid_argument(path + ": " + why);
}

}  // namespace millrace::app
