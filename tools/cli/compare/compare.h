#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "io/plot/plot.h"

namespace millrace::cli {

struct NamedReport {
  std::string name;  ///< column heading
  nlohmann::ordered_json report;
};

/// Reads a run's report. Throws std::invalid_argument "FILE: what is wrong".
NamedReport read_report(const std::string& path);

/// The table as text: the settings that differ, then the results. Numbers are followed by their
/// ratio to the first run's. Missing values are "-".
std::string compare_text(const std::vector<NamedReport>& runs);

/// Points (frame, loss) of the network and the mean frame from a log. Skips other lines. A few
/// thousand points at most, by averaging neighbours. Throws std::invalid_argument.
struct LossCurves {
  std::vector<std::pair<double, double>> network, mean_frame;
};
LossCurves read_curves(const std::string& log);

/// All curves in one chart, with the mean frame's from the first log.
io::Chart compare_chart(const std::vector<std::pair<std::string, LossCurves>>& runs);

}  // namespace millrace::cli
