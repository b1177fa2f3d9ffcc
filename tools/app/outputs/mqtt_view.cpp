#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <exception>
#include <fstream>
#include <iterator>
#include <utility>

#include "engine/format.h"
#include "io/source/source.h"
#include "io/text/nearest_name.h"
#include "tools/app/alerts/channels.h"
#include "tools/app/outputs/live_view.h"
#include "tools/page/json.h"
#include "tools/page/trend.h"

namespace millrace::app {
namespace {

using namespace std::chrono_literals;
using page::Json;

/// A Home Assistant entity: https://www.home-assistant.io/integrations/mqtt#mqtt-discovery.
struct Entity {
  const char *platform, *id, *name;
  Json more;
  bool offered = true;  ///< false: retracts an earlier run's
};

Json value(const std::string& expression) {
  return {{"value_template", "{{ " + expression + " }}"}};
}

Json measured(const std::string& expression, const char* unit = nullptr) {
  Json more = value(expression);
  more["state_class"] = "measurement";
  if (unit) more["unit_of_measurement"] = unit;
  return more;
}

/// Template for a share; "None", which Home Assistant takes for unknown, if it is no number.
Json percent(const std::string& share) {
  return measured("100 * " + share + " if " + share + " is number else none", "%");
}

Json pressed(const char* action) {
  return {{"payload_press", Json({{"action", action}}).dump()}};
}

std::vector<Entity> entities(const page::Snapshot& now, const page::Controls::Offered& offered,
                             bool snapshots) {
  const bool answers = !now.state["answer"].is_null();
  Json events = value("value_json.novelty.events"), label = value("value_json.controls.label"),
       camera = value("'ON' if value_json.stream.connected else 'OFF'");
  events["state_class"] = "total_increasing";
  camera["device_class"] = "connectivity";
  label["options"] = offered.labels;
  label["command_template"] = "{\"label\": {{ value | tojson }}}";
  return {
      {"sensor", "loss", "Loss", measured("value_json.loss.recent")},
      {"sensor", "times", "Better than trivial", measured("value_json.learned.times", "times")},
      {"sensor", "novelty", "Novelty", measured("value_json.novelty.deviation")},
      {"sensor", "events", "Events", events},
      {"sensor", "reason", "Last reason",
       value("value_json.novelty.last.reason if value_json.novelty.last is defined else 'none'")},
      {"sensor", "frame_rate", "Frame rate", measured("value_json.rate.fps", "fps")},
      {"sensor", "latency", "Latency", measured("value_json.latency_ms.recent_p50", "ms")},
      {"sensor", "verdict", "Real time",
       value("('holds' if value_json.realtime.holds else 'fails') if value_json.realtime.judged "
             "else 'unknown'")},
      {"binary_sensor", "new", "Something new",
       value("'ON' if value_json.novelty.in_event else 'OFF'")},
      {"binary_sensor", "connected", "Camera", camera},
      {"sensor", "answer", "Answer",
       value("'neither' if value_json.answer.neither else value_json.answer.class"), answers},
      {"sensor", "probability", "Probability", percent("value_json.answer.probability"), answers},
      {"sensor", "accuracy", "Accuracy",
       percent(answers ? "value_json.accuracy_on_return.recent" : "value_json.accuracy.recent"),
       answers || !now.state["accuracy"].is_null()},
      {"image", "event", "Last event", {{"content_type", "image/png"}}, snapshots},
      {"button", "pause", "Pause", pressed("pause"), offered.pause},
      {"button", "resume", "Resume", pressed("resume"), offered.pause},
      {"button", "save", "Save", pressed("save"), offered.save},
      {"select", "label", "It shows", label, !offered.labels.empty()}};
}

/// Letters, digits, "-" and "_" only: "a/b" is "a_b". A prefix with any other character also gets
/// its FNV-1a hash, so that no two prefixes share an id.
std::string id_of(const std::string& prefix) {
  std::string id = prefix;
  std::uint64_t hash = 14695981039346656037u;
  bool plain = true;
  for (char& c : id) {
    hash = (hash ^ std::uint8_t(c)) * 1099511628211u;
    if (std::isalnum(std::uint8_t(c)) || c == '-') continue;
    plain = plain && c == '/';
    c = '_';
  }
  return plain ? id : id + engine::format("_%016lx", hash);
}

std::vector<MqttMessage> discovery(const Config& config, const page::Snapshot& now,
                                   const page::Controls::Offered& offered, bool snapshots) {
  std::vector<MqttMessage> all;
  const std::string &prefix = config.mqtt.topic_prefix, id = id_of(prefix);
  if (config.mqtt.discovery_prefix.empty()) return all;
  for (Entity& entity : entities(now, offered, snapshots)) {
    Json& json = entity.more;
    const std::string platform = entity.platform;
    json["name"] = entity.name;
    json["unique_id"] = id + "_" + entity.id;
    json["availability_topic"] = prefix + "/availability";
    if (platform == "image")
      json["image_topic"] = prefix + "/event";
    else if (platform != "button")
      json["state_topic"] = prefix + "/state";
    if (platform == "button" || platform == "select") json["command_topic"] = prefix + "/control";
    json["device"] = {{"identifiers", {id}},
                      {"name", prefix},
                      {"manufacturer", "Millrace"},
                      {"model", now.state["task"]},
                      {"sw_version", now.state["version"]}};
    all.push_back(
        {config.mqtt.discovery_prefix + "/" + platform + "/" + id + "/" + entity.id + "/config",
         entity.offered ? json.dump(-1, ' ', false, Json::error_handler_t::replace) : "", true});
  }
  return all;
}

/// Executes `text` at PREFIX/control/`word`, as the page does {"action": word} or {word: text}.
std::string obey_word(const std::string& word, std::string_view text, page::Controls& controls) {
  constexpr std::size_t kLongest = 200;
  constexpr std::array<std::string_view, 5> known = {"pause", "resume", "save", "label",
                                                     "learning_rate"};
  if (std::find(known.begin(), known.end(), word) == known.end())
    return "unknown; the nearest is \"" + io::nearest_name(word.substr(0, kLongest), known) + "\"";
  const std::string said(text.substr(0, kLongest));
  Json command = {{"action", word}};
  if (word == "label") command = {{word, said.empty() ? Json() : Json(said)}};
  if (word == "learning_rate") {
    const Json rate = Json::parse(said, nullptr, /*allow_exceptions=*/false);
    command = {{word, rate.is_number() ? rate : Json()}};
  }
  return page::obey(command.dump(-1, ' ', false, Json::error_handler_t::replace), controls);
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

MqttView::MqttView(const Config& config, std::function<page::Snapshot()> look, const Alerts* alerts,
                   page::Controls& controls)
    : config_(config),
      look_(std::move(look)),
      alerts_(alerts),
      controls_(controls),
      thread_([this] { run(); }) {}

MqttView::~MqttView() {
  stop_ = true;
  thread_.join();
}

std::string MqttView::take_note() {
  const std::lock_guard lock(mutex_);
  return std::exchange(note_, "");
}

void MqttView::note(const std::string& line) {
  const std::lock_guard lock(mutex_);
  note_ = "mqtt: " + line;
}

void MqttView::run() {
  for (std::chrono::seconds pause = 1s;; pause = std::min(2 * pause, 60s)) {
    try {
      return publish();
    } catch (const std::exception& error) {
      note(error.what());
    } catch (...) {
      note("an exception of an unknown type");
    }
    const io::Clock::time_point again = io::Clock::now() + pause;
    while (io::Clock::now() < again) {
      if (stop_) return;
      std::this_thread::sleep_for(100ms);
    }
  }
}

void MqttView::publish() {
  const std::string& prefix = config_.mqtt.topic_prefix;
  const std::string control = prefix + "/control";
  const auto hear = [&](std::string_view topic, std::string_view text) {
    if (!topic.starts_with(control)) return;  // a broker may send anything
    std::string wrong;
    try {
      wrong = topic == control
                  ? page::obey(std::string(text), controls_)
                  : obey_word(std::string(topic.substr(control.size() + 1)), text, controls_);
    } catch (const std::exception& error) {  // the caller is a library in C
      wrong = error.what();
    }
    if (!wrong.empty()) note(std::string(topic.substr(0, control.size() + 200)) + ": " + wrong);
  };
  const bool snapshots = alerts_ && !config_.novelty.snapshots.empty();
  const auto client =
      mqtt_client({.url = config_.mqtt.broker,
                   .presence = prefix + "/availability",
                   .births = discovery(config_, look_(), controls_.offered(), snapshots),
                   .subscription = control + "/#",  // also matches `control` itself
                   .heard = hear});
  page::Trend trend;
  std::string before = client->error(), shown;
  io::Clock::time_point next;
  for (bool last = false; !last;) {
    last = stop_;  // read first, so that everything before stop is published
    client->work(last ? 0ms : 100ms);
    if (client->error() != before) {
      before = client->error();
      note(before.empty() ? "connected to " + io::redacted(config_.mqtt.broker) : before);
    }
    const io::Clock::time_point now = io::Clock::now();
    if (!client->connected() || (now < next && !last)) continue;
    next = now + 1s;
    client->publish(
        {prefix + "/state", page::state_json(trend.add(look_(), now), controls_, 0), true});
    if (const std::string path = alerts_ ? alerts_->last_snapshot() : ""; path != shown)
      client->publish({prefix + "/event", bytes_of(shown = path), true});
  }
}

}  // namespace millrace::app
