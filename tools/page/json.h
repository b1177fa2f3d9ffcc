// What is seen of a run, as JSON for the page and for scripts. Credentials in URIs are left out.
#pragma once

#include <string>  // JSON

#include "tools/page/controls.h"
#include "tools/page/trend.h"

namespace millrace::page {

/// One line. `controls` null: nothing can be turned. Numbers that are not finite become null.
std::string state_json(const Live& live, const Controls* controls, int viewers);

/// {"columns": [...], "recent": [[...], ...], "whole": [[...], ...]}: the past of the charts.
std::string history_json(const Trend& trend);

/// Is training alive? `ok` says whether it is; `text` is JSON that says why.
struct Health {
  bool ok = false;
  std::string text;
};
Health health_json(const Live& live);

/// Reads {"action": "pause" | "resume" | "save"} or {"learning_rate": 0.01} and passes it on.
/// Returns "" or, where nothing was done, one line why.
std::string obey(const std::string& json, Controls& controls);

}  // namespace millrace::page
