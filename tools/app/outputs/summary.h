// The report in a few lines, for people.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <string>

namespace millrace::app {

/// Of make_report()'s report; its last line is the verdict.
std::string summarize(const nlohmann::ordered_json& report);

}  // namespace millrace::app
