#include "tools/cli/compare/compare.h"

#include <filesystem>
#include <iostream>

#include "tools/app/outputs/outputs.h"
#include "tools/cli/commands/command.h"

namespace millrace::cli {
namespace {

struct CompareArguments {
  std::vector<std::string> reports;
  std::vector<std::string> logs;  ///< one per report; empty: the logs that reports name
  std::string plot;
};

/// The log in the report's config, if the file exists.
std::string log_of(const nlohmann::ordered_json& report) {
  const nlohmann::ordered_json::json_pointer place("/config/output/log");
  if (!report.contains(place) || !report.at(place).is_string()) return "";
  const std::string path = report.at(place);
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ? path : "";
}

std::vector<std::pair<std::string, LossCurves>> curves_of(const CompareArguments& arguments,
                                                          const std::vector<NamedReport>& runs) {
  if (!arguments.logs.empty() && arguments.logs.size() != runs.size())
    throw app::ConfigError("--logs: give one per report, in their order");
  std::vector<std::pair<std::string, LossCurves>> curves;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const std::string log = arguments.logs.empty() ? log_of(runs[i].report) : arguments.logs[i];
    if (!log.empty()) curves.emplace_back(runs[i].name, read_curves(log));
  }
  if (curves.empty())
    throw app::ConfigError("--plot: no report names an existing log; name them by --logs");
  return curves;
}

int compare(const CompareArguments& arguments) {
  try {
    std::vector<std::string> read = arguments.reports;
    read.insert(read.end(), arguments.logs.begin(), arguments.logs.end());
    app::require_other_files({{"--plot", arguments.plot}}, read);
    std::vector<NamedReport> runs;
    for (const std::string& path : arguments.reports) runs.push_back(read_report(path));
    std::cout << compare_text(runs);
    if (arguments.plot.empty()) return kDone;
    io::write_chart(compare_chart(curves_of(arguments, runs)), arguments.plot);
    std::cout << "\n" << arguments.plot << ": losses by frame\n";
    return kDone;
  } catch (const std::invalid_argument& error) {
    throw app::ConfigError(error.what());
  }
}

void add_options(CLI::App& options, CompareArguments& arguments) {
  options.add_option("reports", arguments.reports, "Reports, JSON")->required();
  options.add_option("--plot", arguments.plot, "Where to draw their losses, .png");
  options
      .add_option(
          "--logs", arguments.logs,
          "Files that output.log wrote, one per report, by commas; unset: as the reports say")
      ->delimiter(',');
}

}  // namespace

const Command kCompare = {80, "compare",
                          "Show reports of several runs side by side: configs and results",
                          add<CompareArguments, add_options, compare>};

}  // namespace millrace::cli
