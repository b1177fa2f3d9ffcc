// Reports of several runs side by side.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

#include "io/plot/plot.h"

namespace millrace::cli {

struct NamedReport {
  std::string name;  ///< a column's head
  nlohmann::ordered_json report;
};

/// Reads a report of `run`. Throws std::invalid_argument "FILE: what is wrong".
NamedReport read_report(const std::string& path);

/// A table as text: the settings that differ, then the results. Each number but the first run's is
/// followed by its ratio to the first run's. Missing values are "-".
std::string compare_text(const std::vector<NamedReport>& runs);

/// Points (frame, loss) from a log of output.log, and the mean frame's. Other lines are skipped. A
/// few thousand points at most: neighbours are averaged. Throws std::invalid_argument.
struct LossCurves {
  std::vector<std::pair<double, double>> network, mean_frame;
};
LossCurves read_curves(const std::string& log);

/// All curves in one chart, with the mean frame's from the first log.
io::Chart compare_chart(const std::vector<std::pair<std::string, LossCurves>>& runs);

}  // namespace millrace::cli
