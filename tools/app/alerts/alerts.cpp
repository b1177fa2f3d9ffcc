#include "tools/app/alerts/alerts.h"

#include <fnmatch.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/format.h"
#include "io/files/whole_file.h"
#include "io/plot/plot.h"
#include "io/queue/planar.h"
#include "io/source/source.h"
#include "tools/app/alerts/channels.h"
#include "tools/app/events/event_json.h"

namespace millrace::app {
namespace {

using namespace std::chrono_literals;

/// FOLDER/20260102T030405Z-event-7-frame-1234ENDING, in UTC, so that names sort by time.
std::string path_of(const std::string& folder, const Alert& alert, const std::string& ending) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(alert.event.time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char time[32];
  std::strftime(time, sizeof time, "%Y%m%dT%H%M%SZ", &parts);
  return std::filesystem::path(folder) /
         (std::string(time) + "-event-" + std::to_string(alert.event.event) + "-frame-" +
          std::to_string(alert.event.frame) + ending);
}

/// Paths of the snapshots in `folder`, including earlier runs', oldest first.
std::deque<std::string> snapshots_in(const std::string& folder) {
  std::deque<std::string> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (fnmatch("[0-9]*T[0-9]*Z-event-[0-9]*-frame-[0-9]*.png", name.c_str(), 0) == 0)
      found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::string alert_json(const Alert& alert, const std::string& source) {
  nlohmann::ordered_json json = event_json(alert.event);
  json["source_frame"] = alert.event.frame;  // deprecated name of "frame"
  json["loss"] = alert.loss;                 // NaN becomes null
  json["snapshot"] = alert.snapshot;
  json["clip"] = alert.clip;
  json["source"] = io::redacted(source);
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void publish(const std::string& url, const std::string& topic, const std::string& text,
             std::chrono::milliseconds limit) {
  const auto client = mqtt_client({.url = url});
  bool sent = false;
  const auto end = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < end && !(sent && client->idle())) {
    client->work(std::min(10ms, limit));
    if (client->connected() && !std::exchange(sent, true)) client->publish({topic, text});
  }
  if (!client->error().empty()) throw std::runtime_error(client->error());
  if (!sent || !client->idle()) {
    throw std::runtime_error(io::redacted(url) + ": no confirmation by the broker within " +
                             std::to_string(limit.count()) + " ms");
  }
}

Alerts::Alerts(AlertOptions options) : options_(std::move(options)), slots_(kWaiting) {
  const std::size_t elements = std::size_t(options_.channels) * options_.height * options_.width;
  if (!options_.snapshots.empty() && options_.clip_seconds > 0) {
    clips_ =
        std::make_unique<ClipRecorder>(ClipOptions{.channels = options_.channels,
                                                   .height = options_.height,
                                                   .width = options_.width,
                                                   .seconds = options_.clip_seconds,
                                                   .fps = options_.fps > 0 ? options_.fps : 25});
  }
  for (int slot = 0; slot < kWaiting; ++slot) {
    Slot& mine = slots_[std::size_t(slot)];
    if (!options_.snapshots.empty()) {
      for (auto* const picture : {&mine.frame, &mine.usual, &mine.difference})
        picture->resize(elements);
    }
    free_.put(slot);
  }
  thread_ = std::thread([this] { run(); });
}

Alerts::~Alerts() {
  finish();
}

void Alerts::finish() {
  if (clips_) clips_->end();
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

void Alerts::film(const float* frame, const float* prediction) {
  if (clips_) clips_->see(frame, prediction);
}

void Alerts::raise(const Alert& alert, const EventPictures& pictures) {
  const std::lock_guard one(raising_);
  int number = 0;
  if (!free_.take(number)) {
    dropped_.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  Slot& slot = slots_[std::size_t(number)];
  slot.alert = alert;
  slot.pictures = pictures.frame && !slot.frame.empty();
  slot.films = pictures.frame && clips_ && clips_->keep();
  if (slot.pictures) {
    std::copy_n(pictures.frame, slot.frame.size(), slot.frame.begin());
    std::copy_n(pictures.usual, slot.usual.size(), slot.usual.begin());
    std::copy_n(pictures.difference, slot.difference.size(), slot.difference.begin());
  }
  ready_.put(number);
}

void Alerts::run() {
  if (!options_.snapshots.empty()) written_ = snapshots_in(options_.snapshots);
  for (;;) {
    const bool last = stop_.load();  // read first, so that everything raised before stop() is sent
    int number = 0;
    if (ready_.take(number, last ? 0us : 20ms)) {
      tell(slots_[std::size_t(number)]);
      free_.put(number);
    } else if (clips_ && clips_->ready()) {
      failed_.fetch_add(!attempt([&] { clips_->write(clip_path_); }), std::memory_order_relaxed);
      keep(clip_path_);
    } else if (last) {
      return;
    }
  }
}

template <class Act>
bool Alerts::attempt(const Act& act) {
  try {
    act();
    return true;
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    last_error_ = error.what();
    return false;
  }
}

/// The time-out of one post; after the run, all posts share one.
std::chrono::milliseconds Alerts::patience() {
  if (!stop_.load()) return options_.patience;
  const auto now = std::chrono::steady_clock::now();
  if (last_end_ == std::chrono::steady_clock::time_point()) last_end_ = now + options_.patience;
  return std::max(1ms, std::chrono::ceil<std::chrono::milliseconds>(last_end_ - now));
}

void Alerts::tell(Slot& slot) {
  bool all = true;
  if (slot.pictures) all = attempt([&] { write_snapshot(slot); });
  if (slot.films) slot.alert.clip = clip_path_ = path_of(options_.snapshots, slot.alert, ".mp4");
  if (!slot.alert.snapshot.empty()) all = attempt([&] { write_sidecar(slot); }) && all;
  const auto limit = patience();
  const std::string json = alert_json(slot.alert, options_.source);
  if (!options_.webhook.empty())
    all = attempt([&] { post_json(options_.webhook, json, limit); }) && all;
  if (!options_.mqtt.empty())
    all = attempt([&] { publish(options_.mqtt, options_.topic, json, limit); }) && all;
  (all ? told_ : failed_).fetch_add(1, std::memory_order_relaxed);
}

void Alerts::write_snapshot(Slot& slot) {
  const std::string path = path_of(options_.snapshots, slot.alert, ".png");
  const NoveltyEvent& event = slot.alert.event;
  const auto picture = [&](const std::vector<float>& data) {
    return io::from_planar(data.data(), options_.channels, options_.height, options_.width);
  };
  io::Frame seen = picture(slot.frame);
  if (event.has_box()) io::outline(seen, event.left, event.top, event.width, event.height);
  io::write_strip(
      "Unexpected: frame " + std::to_string(event.frame),
      {{"seen", std::string(name_of(event.reason)) + (event.zone.empty() ? "" : ", " + event.zone),
        std::move(seen)},
       {"usual", engine::format("deviation %.1f", event.deviation), picture(slot.usual)},
       {"difference x4", "seen - usual", picture(slot.difference)}},
      path);
  slot.alert.snapshot = path;
  keep(path);
  const std::lock_guard lock(mutex_);
  last_snapshot_ = path;
}

void Alerts::write_sidecar(const Slot& slot) {
  const std::filesystem::path picture = slot.alert.snapshot;
  io::write_whole(std::filesystem::path(picture).replace_extension(".json"),
                  alert_json(slot.alert, options_.source) + "\n");
}

void Alerts::keep(const std::string& path) {
  written_.push_back(path);
  std::error_code ignored;
  for (; written_.size() > options_.keep; written_.pop_front()) {
    std::filesystem::remove(written_.front(), ignored);
    std::filesystem::remove(std::filesystem::path(written_.front()).replace_extension(".json"),
                            ignored);
  }
}

std::string Alerts::last_snapshot() const {
  const std::lock_guard lock(mutex_);
  return last_snapshot_;
}

std::string Alerts::last_error() const {
  const std::lock_guard lock(mutex_);
  return last_error_;
}

}  // namespace millrace::app
