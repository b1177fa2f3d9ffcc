#include "tools/bindings/gst/settings.h"

#include <filesystem>
#include <vector>

namespace millrace::gst {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == ';' || c == '\n') {
      lines.emplace_back();
    } else {
      lines.back() += c;
    }
  }
  std::erase_if(lines, [](const std::string& line) {
    return line.find_first_not_of(" \t") == std::string::npos;
  });
  return lines;
}

}  // namespace

app::Config config_of(const Settings& settings, const std::string& sink) {
  app::Config config = app::load_config(settings.config, lines_of(settings.set));
  config.source.uri = "gst:" + sink;  // for the report; nothing opens it
  if (!settings.schedule.empty()) config.set("pipeline.schedule", settings.schedule);
  if (!settings.report.empty()) config.output.report = settings.report;
  if (settings.weights.empty()) return config;
  config.output.weights = settings.weights;
  if (std::filesystem::exists(settings.weights)) config.weights.file = settings.weights;
  return config;
}

}  // namespace millrace::gst
