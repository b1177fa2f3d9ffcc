// What several runs' reports say, side by side.
#pragma once

#include <nlohmann/json.hpp>  // reports

#include <string>  // text, names
#include <vector>  // runs

#include "io/plot/plot.h"

namespace millrace::cli {

struct NamedReport {
  std::string name;  ///< a column's head
  nlohmann::ordered_json report;
};

/// Reads a report that `run` wrote. Throws std::invalid_argument "FILE: what is wrong".
NamedReport read_report(const std::string& path);

/// A table as text: what the runs were asked (only what differs), then what came of it. Behind each
/// number but the first stands its ratio to the first run's. Missing values are "-".
std::string compare_text(const std::vector<NamedReport>& runs);

/// Points (frame, loss) of a log that output.log wrote, and the mean frame's; lines that are none
/// are passed over. At most some thousand points: neighbours are averaged. Throws
/// std::invalid_argument.
struct LossCurves {
  std::vector<std::pair<double, double>> network, mean_frame;
};
LossCurves read_curves(const std::string& log);

/// All curves in one chart; the mean frame's is the first log's.
io::Chart compare_chart(const std::vector<std::pair<std::string, LossCurves>>& runs);

}  // namespace millrace::cli
