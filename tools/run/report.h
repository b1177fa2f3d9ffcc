// What a run leaves: report.json, and a few lines for people.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace millrace::tools {

struct RunParts;

/// The report of a run that has learned, as docs/report.md explains it key by key.
nlohmann::ordered_json make_report(RunParts& run);

/// The same in a few lines, ending with the verdict.
std::string summarize(const nlohmann::ordered_json& report);

}  // namespace millrace::tools
