#include "tools/page/json.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "io/source/source.h"

namespace millrace::page {
namespace {

/// Rounded to six digits or thousandths: enough for charts, and the history is a third as long.
Json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0;
  const double scale = std::pow(10.0, std::max(3.0, 5 - std::floor(std::log10(std::abs(value)))));
  return std::isfinite(scale) ? std::round(value * scale) / scale : value;
}

/// `json` ready to show: numbers rounded, credentials removed from URIs.
Json shown(Json json) {
  if (json.is_number_float()) return number(json.get<double>());
  if (json.is_string()) return io::redacted(json.get_ref<const std::string&>());
  if (json.is_structured())
    for (Json& part : json) part = shown(std::move(part));
  return json;
}

std::string text(Json json) {
  return shown(std::move(json)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string state_json(const Live& live, const Controls& controls, int viewers, Json events) {
  const Controls::Offered& offered = controls.offered();
  Json state = live.now.state;
  state["viewers"] = viewers;
  if (!events.is_null()) state["events"] = std::move(events);
  state["controls"]["pause_asked"] = controls.paused();
  state["controls"]["offered"] = {{"pause", offered.pause},
                                  {"save", offered.save},
                                  {"learning_rate", bool(offered.set_learning_rate)},
                                  {"labels", offered.labels}};
  return text(std::move(state));
}

std::string events_json(const EventStore& events) {
  return text({{"events", events.list()}});
}

std::string history_json(const Trend& trend) {
  Json columns;
  for (const TrendColumn& column : kTrendColumns) columns.push_back(column.name);
  return text(
      {{"columns", columns}, {"recent", Json(trend.recent())}, {"whole", Json(trend.whole())}});
}

Health health_json(const Live& live) {
  const Json& state = live.now.state;
  const std::string trouble = text_at(state, "/controls/trouble");
  const double trained = number_at(state, "/frames/trained_since_reconnect");
  const bool unlabelled = trained <= 0 && live.now.frames.without_target > 0;
  const char* status = number_at(state, "/stream/connected") == 0             ? "source away"
                       : !trouble.empty()                                     ? "not saving"
                       : number_at(state, "/controls/paused") > 0             ? "paused"
                       : live.stalled                                         ? "stalled"
                       : unlabelled                                           ? "waiting for labels"
                       : live.untaught && text_at(state, "/task") == "stream" ? "no targets"
                       : trained <= 0                                         ? "starting"
                                                                              : "ok";
  const bool ok = std::ranges::count(std::array{"ok", "paused", "waiting for labels"},
                                     std::string_view(status)) > 0;
  return {ok, text({{"status", status},
                    {"frames_trained_since_reconnect", std::int64_t(trained)},
                    {"seconds_since_last_frame", live.still_s},
                    {"trouble", trouble},
                    {"reconnects", state.value("/stream/reconnects"_json_pointer, 0)}})};
}

std::string obey(const std::string& json, Controls& controls) {
  constexpr std::size_t kLongest = 4096;  // limits the parser's memory and time
  const Json command = Json::parse(json.substr(0, kLongest), nullptr, /*allow_exceptions=*/false);
  if (!command.is_object() || command.size() != 1)
    return "expected one JSON object with one member";
  const std::string& name = command.begin().key();
  const Json& value = command.begin().value();
  const Controls::Offered& offered = controls.offered();
  if (name == "learning_rate") {
    if (!offered.set_learning_rate) return "the learning rate of this run is fixed";
    if (!value.is_number()) return "learning_rate must be a number";
    const double rate = value.get<double>();
    if (!(rate >= 0 && rate <= 1000)) return "learning_rate must be from 0 to 1000";
    offered.set_learning_rate(rate);
    return "";
  }
  if (name == "label" || name == "forget") {
    if (!offered.hear_label) return "this run takes no labels: task.labels = \"http\"";
    return offered.hear_label(Json{{name == "label" ? "class" : name, value}}.dump());
  }
  if (name != "action" || !value.is_string())
    return "expected \"action\", \"label\", \"forget\" or \"learning_rate\"";
  const std::string action = value.get<std::string>();
  if (action == "pause" || action == "resume") {
    if (!offered.pause) return "this run cannot be paused";
    controls.pause(action == "pause");
  } else if (action == "save") {
    if (!offered.save)
      return "this run cannot save: it needs checkpoint.dir, and pipeline.tensor = 1";
    controls.save();
  } else {
    return "expected \"pause\", \"resume\" or \"save\"";
  }
  return "";
}

}  // namespace millrace::page
