#include "tools/page/json.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "engine/format.h"
#include "io/source/source.h"  // redacted
#include "tools/page/class_colours.h"

namespace millrace::page {
namespace {

using Json = nlohmann::ordered_json;

/// Rounded to six digits, which is enough for charts and makes the history a third as long.
Json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0;
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(value))));
  return std::isfinite(scale) ? std::round(value * scale) / scale : value;
}

Json stages_json(const Live& live) {
  Json stages = Json::array();
  for (std::size_t i = 0; i < live.now.stages.size(); ++i) {
    const StageState& stage = live.now.stages[i];
    const engine::Reading& r = live.now.reading;
    stages.push_back({{"device", stage.device},
                      {"replicas", stage.replicas},
                      {"compute_ms", number(r.stage[i])},
                      {"handoff_ms", number(r.handoff[i])},
                      {"busy_ms", number(r.stage_busy[i])},
                      {"load", number(i < live.load.size() ? live.load[i] : 0)},
                      {"updates", r.updates[i]},
                      {"misses", r.misses[i]},
                      {"gradient_age", r.gradient_age[i]},
                      {"dead_units", stage.dead},
                      {"units", stage.units}});
  }
  return stages;
}

Json stream_json(const StreamState& stream) {
  return {{"connected", stream.connected},         {"breaks", stream.breaks},
          {"reconnects", stream.reconnects},       {"frames_since", stream.frames_since},
          {"lost_upstream", stream.lost_upstream}, {"last_error", io::redacted(stream.last_error)}};
}

Json controls_json(const Snapshot& now, const Controls* controls) {
  const Controls::Offered offered =
      controls ? controls->offered()
               : Controls::Offered{.pause = false, .save = false, .learning_rate = false};
  return {{"paused", now.paused},
          {"pause_asked", controls && controls->paused()},
          {"learning_rate", number(now.learning_rate)},
          {"saves", now.saves},
          {"failed_saves", now.failed_saves},
          {"trouble", io::redacted(now.trouble)},
          {"notice", io::redacted(now.notice)},
          {"label", now.label.empty() ? Json() : Json(now.label)},
          {"offered",
           {{"pause", offered.pause},
            {"save", offered.save},
            {"learning_rate", offered.learning_rate},
            {"labels", offered.labels}}}};
}

/// Null: the run has no classes.
Json accuracy_json(const std::optional<Snapshot::Accuracy>& now) {
  if (!now) return nullptr;
  return {{"recent", number(now->recent)}, {"majority", {{"recent", number(now->majority)}}}};
}

/// Names and colours of pixels' classes, "#rrggbb".
Json classes_json(const std::vector<std::string>& names) {
  Json classes = Json::array();
  for (std::size_t i = 0; i < names.size(); ++i) {
    const auto [red, green, blue] = class_colour(int(i));
    classes.push_back(
        {{"name", names[i]}, {"colour", engine::format("#%02x%02x%02x", red, green, blue)}});
  }
  return classes;
}

/// Null: targets are no pictures.
Json psnr_json(const std::optional<Snapshot::Psnr>& now) {
  if (!now) return nullptr;
  return {{"recent", number(now->recent)},
          {"mean_frame", {{"recent", number(now->mean_frame)}}},
          {"last_frame", {{"recent", number(now->last_frame)}}}};
}

Json points_json(const auto& points) {
  Json rows = Json::array();
  for (const TrendPoint& point : points) {
    Json row = Json::array();
    for (const double value : point) row.push_back(number(value));
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string state_json(const Live& live, const Controls* controls, int viewers) {
  const Snapshot& s = live.now;
  const engine::FrameCounts& frames = s.frames;
  const engine::Reading& r = s.reading;
  return text({{"t", number(live.seconds)},
               {"viewers", viewers},
               {"version", s.version},
               {"source", io::redacted(s.source)},
               {"task", s.task},
               {"classes", classes_json(s.classes)},
               {"schedule", s.schedule},
               {"cut", s.cut},
               {"correction", s.correction},
               {"local_note", s.local_note},
               {"frames",
                {{"received", frames.received},
                 {"trained", frames.trained},
                 {"dropped", frames.dropped},
                 {"rejected", frames.rejected},
                 {"in_flight", frames.in_flight()},
                 {"predicted_only", frames.predicted_only},
                 {"replayed", frames.replayed},
                 {"before", s.frames_before},
                 {"trained_since_reconnect", live.trained_since_reconnect}}},
               {"rate", {{"fps", number(live.fps)}, {"dropped_fps", number(live.dropped_fps)}}},
               {"loss",
                {{"last", number(s.loss_last)},
                 {"recent", number(s.loss_recent)},
                 {"mean_frame", {{"recent", number(s.mean_frame_recent)}}},
                 {"last_frame", {{"recent", number(s.last_frame_recent)}}},
                 {"linear", {{"recent", number(s.linear_recent)}}}}},
               {"learned",
                {{"yes", s.times > 1}, {"strongest", s.strongest}, {"times", number(s.times)}}},
               {"accuracy", accuracy_json(s.accuracy)},
               {"iou", accuracy_json(s.iou)},
               {"psnr_db", psnr_json(s.psnr)},
               {"novelty",
                {{"unexpected", s.unexpected},
                 {"events", s.events},
                 {"deviation", number(s.deviation)},
                 {"in_event", s.in_event}}},
               {"guard",
                {{"roll_backs", s.roll_backs},
                 {"last_frame", s.roll_backs > 0 ? Json(s.last_roll_back) : Json()},
                 {"rate", number(s.backed_off)}}},
               {"learning_rate", number(s.rate_in_force)},
               {"timing_ms",
                {{"T", number(r.T)},
                 {"T_over_N", number(r.T_over_N)},
                 {"bottleneck", number(r.bottleneck)},
                 {"bottleneck_stage", r.bottleneck_stage},
                 {"step_p50", number(r.step_p50)},
                 {"step_p99", number(r.step_p99)},
                 {"speedup_K", number(r.speedup_K)}}},
               {"realtime",
                {{"F", number(r.F)},
                 {"budget_ms", number(r.budget)},
                 {"judged", s.verdict.judged},
                 {"holds", s.verdict.holds},
                 {"reason", s.verdict.reason}}},
               {"latency_ms",
                {{"p50", number(r.latency_p50)},
                 {"p99", number(r.latency_p99)},
                 {"max", number(r.latency_max)},
                 {"recent_p50", number(live.latency_p50)},
                 {"recent_p99", number(live.latency_p99)}}},
               {"stages", stages_json(live)},
               {"stream", stream_json(s.stream)},
               {"controls", controls_json(s, controls)}});
}

std::string history_json(const Trend& trend) {
  return text({{"columns", kTrendColumns},
               {"recent", points_json(trend.recent())},
               {"whole", points_json(trend.whole())}});
}

Health health_json(const Live& live) {
  const bool connected = live.now.stream.connected;
  const char* status = !connected                          ? "source away"
                       : !live.now.trouble.empty()         ? "not saving"
                       : live.now.paused                   ? "paused"
                       : live.stalled                      ? "stalled"
                       : live.trained_since_reconnect <= 0 ? "starting"
                                                           : "ok";
  const bool ok = std::string(status) == "ok" || std::string(status) == "paused";
  return {ok, text({{"status", status},
                    {"frames_trained_since_reconnect", live.trained_since_reconnect},
                    {"seconds_since_last_frame", number(live.still_s)},
                    {"trouble", io::redacted(live.now.trouble)},
                    {"reconnects", live.now.stream.reconnects}})};
}

std::string obey(const std::string& json, Controls& controls) {
  constexpr std::size_t kLongest = 4096;  // beyond it a parser takes memory and time
  const Json wish = Json::parse(json.substr(0, kLongest), nullptr, /*allow_exceptions=*/false);
  if (!wish.is_object() || wish.size() != 1) return "expected one wish as a JSON object";
  const std::string& name = wish.begin().key();
  const Json& value = wish.begin().value();
  const Controls::Offered& offered = controls.offered();
  if (name == "learning_rate") {
    if (!offered.learning_rate) return "the learning rate of this run is fixed";
    if (!value.is_number()) return "learning_rate must be a number";
    const double rate = value.get<double>();
    if (!(rate >= 0 && rate <= 1000)) return "learning_rate must be from 0 to 1000";
    controls.set_learning_rate(rate);
    return "";
  }
  if (name == "label") {
    if (!offered.hear_label) return "this run takes no labels: task.labels = \"http\"";
    return offered.hear_label(Json{{"class", value}}.dump());
  }
  if (name != "action" || !value.is_string())
    return "expected \"action\", \"label\" or \"learning_rate\"";
  const std::string action = value.get<std::string>();
  if (action == "pause" || action == "resume") {
    if (!offered.pause) return "this run cannot be paused";
    controls.pause(action == "pause");
  } else if (action == "save") {
    if (!offered.save) return "this run has nowhere to save to";
    controls.save();
  } else {
    return "expected \"pause\", \"resume\" or \"save\"";
  }
  return "";
}

}  // namespace millrace::page
