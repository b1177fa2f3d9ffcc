#include "tools/cli/compare/compare.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include <toml++/toml.h>

#include "engine/format.h"
#include "engine/monitor/downsampled.h"
#include "stages/json_bounds.h"
#include "tools/app/config/deep_key.h"

namespace millrace::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uintmax_t kMostBytes = 64 << 20;  // of a report
constexpr std::size_t kMostConfig = 1 << 20;     // bytes of its config
constexpr std::size_t kMostPoints = 4000;

/// Rows of the table: label, and the figure's position in a report.
constexpr std::array<std::pair<const char*, const char*>, 25> kRows = {{
    {"frames received", "/frames/received"},
    {"frames trained", "/frames/trained"},
    {"frames dropped", "/frames/dropped"},
    {"frames rejected", "/frames/rejected"},
    {"updates", "/updates"},
    {"gradient age", "/gradient_age"},
    {"T, ms", "/timing_ms/T"},
    {"T/N, ms", "/timing_ms/T_over_N"},
    {"slowest stage, ms", "/timing_ms/bottleneck"},
    {"step p50, ms", "/timing_ms/step_p50"},
    {"step p99, ms", "/timing_ms/step_p99"},
    {"speed-up K", "/timing_ms/speedup_K"},
    {"F, frames a second", "/realtime/F"},
    {"real time holds", "/realtime/holds"},
    {"latency p50, ms", "/latency_ms/p50"},
    {"latency p99, ms", "/latency_ms/p99"},
    {"loss, mean", "/loss/mean"},
    {"loss, last 100", "/loss/recent"},
    {"mean frame, last 100", "/loss/mean_frame/recent"},
    {"last frame, last 100", "/loss/last_frame/recent"},
    {"strongest trivial", "/learned/strongest"},
    {"times better than it", "/learned/times"},
    {"accuracy, last 100", "/accuracy/recent"},
    {"roll-backs", "/guard/roll_backs"},
    {"unexpected frames", "/novelty/marked"},
}};

/// Settings as resolved by the run, listed with the config.
constexpr std::array<const char*, 6> kAsked = {"schedule", "stages",     "devices",
                                               "cut",      "correction", "capture"};

const Json* at(const Json& report, const std::string& pointer) {
  const Json::json_pointer place(pointer);
  return report.contains(place) ? &report.at(place) : nullptr;
}

std::string text_of(const Json* value) {
  if (!value || value->is_null()) return "-";
  if (value->is_boolean()) return value->get<bool>() ? "yes" : "no";
  if (value->is_number_float()) return engine::format("%.4g", value->get<double>());
  return value->is_string() ? value->get<std::string>() : value->dump();
}

/// " (x 0.83)", relative to the first run; "" without a ratio or if it is 1.
std::string ratio_text(const Json* first, const Json* value) {
  if (!first || !value || !first->is_number() || !value->is_number()) return "";
  const double ratio = value->get<double>() / first->get<double>();
  if (!std::isfinite(ratio) || ratio == 1) return "";
  return engine::format(" (x %.3g)", ratio);
}

using Table = std::vector<std::vector<std::string>>;

bool differ(const std::vector<std::string>& row) {
  return std::any_of(row.begin() + 1, row.end(), [&](const auto& v) { return v != row[1]; });
}

/// The paths of all values within "config", in order of first occurrence.
std::vector<std::string> config_paths(const std::vector<NamedReport>& runs) {
  Json all = Json::object();
  for (const NamedReport& run : runs) {
    const Json* const config = at(run.report, "/config");
    if (config && config->is_object()) all.update(*config, true);
  }
  std::vector<std::string> paths;
  for (const auto& [table, keys] : all.items()) {
    if (!keys.is_object())
      paths.push_back(table);
    else
      for (const auto& [key, value] : keys.items()) paths.push_back(table + "/" + key);
  }
  return paths;
}

Table asked_table(const std::vector<NamedReport>& runs) {
  Table table;
  const auto add = [&](std::string label, const std::string& pointer) {
    std::vector<std::string> row = {std::move(label)};
    for (const NamedReport& run : runs) row.push_back(text_of(at(run.report, pointer)));
    if (differ(row)) table.push_back(std::move(row));
  };
  for (const char* key : kAsked) add(key, std::string("/") + key);
  for (const std::string& path : config_paths(runs)) {
    std::string label = path;
    std::replace(label.begin(), label.end(), '/', '.');
    add(label, "/config/" + path);
  }
  return table;
}

Table figures_table(const std::vector<NamedReport>& runs) {
  Table table;
  for (const auto& [label, pointer] : kRows) {
    const Json* const first = at(runs[0].report, pointer);
    std::vector<std::string> fields = {label};
    bool any = false;
    for (const NamedReport& run : runs) {
      const Json* const value = at(run.report, pointer);
      any = any || (value && !value->is_null());
      fields.push_back(text_of(value) + (value == first ? "" : ratio_text(first, value)));
    }
    if (any) table.push_back(std::move(fields));
  }
  return table;
}

std::string aligned(const Table& table) {
  std::vector<std::size_t> widths;
  for (const auto& row : table) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : table) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] + 2 - row[i].size(), ' ');
    }
    text += line + "\n";
  }
  return text;
}

/// A discarded value for invalid JSON.
Json parse_in(const std::string& path, const std::string& text) {
  try {
    return stages::parse_bounded<Json>(text);
  } catch (const std::length_error& error) {
    throw std::invalid_argument(path + ": " + error.what());
  }
}

/// The TOML config in a run's report, as JSON; null: none.
Json config_in(const std::string& path, const Json& report) {
  const Json* const text = at(report, "/run/config");
  if (!text || !text->is_string()) return nullptr;
  const auto& config = text->get_ref<const std::string&>();
  if (config.size() > kMostConfig || app::line_of_deep_key(config)) return nullptr;
  std::ostringstream json;
  try {
    json << toml::json_formatter(toml::parse(config));
  } catch (const toml::parse_error&) {
    return nullptr;
  }
  return parse_in(path, json.str());
}

}  // namespace

NamedReport read_report(const std::string& path) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(path, failed))
    throw std::invalid_argument(
        path + (std::filesystem::exists(path, failed) ? ": is not a file" : ": no such file"));
  if (std::filesystem::file_size(path, failed) > kMostBytes)
    throw std::invalid_argument(path + ": is larger than 64 MiB");
  std::ifstream file(path);
  Json report = parse_in(path, {std::istreambuf_iterator<char>(file), {}});
  if (!report.is_object() || !report.contains("frames") || !report.contains("timing_ms"))
    throw std::invalid_argument(path + ": is no report of a run");
  if (Json config = config_in(path, report); config.is_object())
    report["config"] = std::move(config);
  return {path, std::move(report)};
}

std::string compare_text(const std::vector<NamedReport>& runs) {
  std::vector<std::string> head = {""};
  for (const NamedReport& run : runs) head.push_back(run.name);
  Table table = {head};
  const Table asked = asked_table(runs), figures = figures_table(runs);
  table.insert(table.end(), asked.begin(), asked.end());
  table.push_back({});
  table.insert(table.end(), figures.begin(), figures.end());
  std::string text = aligned(table);
  if (asked.empty()) text.insert(text.find('\n') + 1, "no setting differs\n");
  return text;
}

LossCurves read_curves(const std::string& log) {
  std::ifstream file(log);
  if (!file) throw std::invalid_argument(log + ": cannot be read");
  engine::Downsampled<2> network(kMostPoints), mean_frame(kMostPoints);  // frame and loss
  for (std::string text; std::getline(file, text);) {
    const Json line = parse_in(log, text);
    if (!line.is_object() || !line.contains("frame") || !line["frame"].is_number()) continue;
    const double frame = line["frame"];
    if (const Json* loss = at(line, "/loss"); loss && loss->is_number())
      network.add({frame, loss->get<double>()});
    if (const Json* loss = at(line, "/mean_frame_loss"); loss && loss->is_number())
      mean_frame.add({frame, loss->get<double>()});
  }
  if (network.points().empty())
    throw std::invalid_argument(log + ": holds no line that output.log wrote");
  const auto points_of = [](const engine::Downsampled<2>& curve) {
    std::vector<std::pair<double, double>> points;
    for (const auto& [at, loss] : curve.points()) points.emplace_back(at, loss);
    return points;
  };
  return {points_of(network), points_of(mean_frame)};
}

io::Chart compare_chart(const std::vector<std::pair<std::string, LossCurves>>& runs) {
  io::Chart chart{.title = "Loss while learning, run by run",
                  .x_label = "frame",
                  .y_label = "loss",
                  .log_y = true};
  for (const auto& [name, curves] : runs)
    chart.series.push_back({.label = name, .points = curves.network});
  if (!runs.empty() && !runs[0].second.mean_frame.empty())
    chart.series.push_back(
        {.label = "mean frame", .points = runs[0].second.mean_frame, .dashed = true});
  return chart;
}

}  // namespace millrace::cli
