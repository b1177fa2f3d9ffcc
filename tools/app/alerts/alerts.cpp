#include "tools/app/alerts/alerts.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/format.h"
#include "io/files/whole_file.h"
#include "io/plot/plot.h"
#include "io/queue/planar.h"
#include "io/source/source.h"
#include "io/video/video_writer.h"
#include "tools/app/alerts/channels.h"

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

/// Stores the latest frames, each beside its error map, as bytes. One thread records, another
/// writes; they swap two films, each kLongest `clip_seconds` long. An event that begins soon after
/// a clip therefore has less footage before it, and none while that is written. Leaves out frames
/// of a stream that is faster than its source says, or than 30 a second. Only the constructor
/// allocates.
class ClipRecorder {
 public:
  enum class Clip { none, begun, prolonged };

  explicit ClipRecorder(const AlertOptions& options)
      : options_(options),
        fps_(options.fps > 0 ? options.fps : 30),
        places_(kLongest * std::max(1L, std::lround(options.clip_seconds * fps_)) + 1),
        off_(std::size_t(options.channels * options.height * options.width)) {
    seen_.reshape(options.width, options.height, options.channels);
    error_ = seen_;
    for (Film& film : films_) {
      film.pictures.resize(std::size_t(places_));
      for (io::Frame& both : film.pictures) io::side_by_side(seen_, error_, both);
    }
  }

  // Recording thread. Both are float32 [channels][height][width] in 0..1; `seconds`: stream time.
  void see(const float* frame, const float* prediction, double seconds) {
    if (seconds < latest_) {
      end();
      films_[recorded_].seen = 0;
    } else if (seconds - latest_ < 0.75 / fps_ && films_[recorded_].seen > 0) {
      return;
    }
    latest_ = seconds;
    io::from_planar(frame, options_.channels, options_.height, options_.width, seen_);
    io::shown_error({prediction, off_.size()}, {frame, off_.size()}, off_);
    io::from_planar(off_.data(), options_.channels, options_.height, options_.width, error_);
    Film& film = films_[recorded_];
    io::Frame& picture = film.pictures[std::size_t(film.seen++ % places_)];
    io::side_by_side(seen_, error_, picture);
    picture.pts = std::chrono::nanoseconds(std::llround(1e9 * seconds));
    if (until_ && seconds > *until_ - 0.5 / fps_) end();
  }
  /// Starts a clip of the latest `clip_seconds` and as many more, or prolongs the one that is being
  /// recorded. None: one is being written.
  Clip keep() {
    if (ready()) return Clip::none;
    const Clip clip = until_ ? Clip::prolonged : Clip::begun;
    double& from = films_[recorded_].from;
    if (!until_) from = latest_ - options_.clip_seconds;
    until_ = std::min(latest_ + options_.clip_seconds, from + kLongest * options_.clip_seconds);
    return clip;
  }
  void end() {
    if (!until_) return;
    until_.reset();
    recorded_ = 1 - recorded_;
    films_[recorded_].seen = 0;
    full_.store(true, std::memory_order_release);
  }

  // Writing thread.
  bool ready() const { return full_.load(std::memory_order_acquire); }
  /// Writes the film that is ready() and returns it to the recorder. Throws std::runtime_error.
  void write(const std::string& path) {
    Film& film = films_[1 - recorded_];
    struct GiveBack {
      std::atomic<bool>& full;
      ~GiveBack() { full.store(false, std::memory_order_release); }
    } const give_back{full_};
    std::int64_t first = film.seen - std::min(film.seen, places_);
    const auto at = [&](std::int64_t n) -> io::Frame& {
      return film.pictures[std::size_t(n % places_)];
    };
    const auto from = std::chrono::nanoseconds(std::llround(1e9 * (film.from - 0.5 / fps_)));
    while (at(first).pts < from) ++first;
    const auto writer = io::open_video_writer({.to = path,
                                               .width = 2 * options_.width,
                                               .height = options_.height,
                                               .channels = options_.channels,
                                               .fps = fps_,
                                               .waiting = int(places_) + 1});
    const std::chrono::nanoseconds begin = at(first).pts;
    for (std::int64_t n = first; n < film.seen; ++n) {
      at(n).pts -= begin;
      writer->write(at(n));
    }
    writer->finish();
  }

 private:
  struct Film {
    std::vector<io::Frame> pictures;
    std::int64_t seen = 0;
    double from = 0;  ///< seconds: the first frame of its clip
  };

  static constexpr int kLongest = 3;  ///< times clip_seconds: a second event is whole as well

  const AlertOptions& options_;
  const double fps_;
  const std::int64_t places_;  ///< frames
  std::vector<float> off_;
  io::Frame seen_, error_;
  Film films_[2];
  int recorded_ = 0;
  double latest_ = 0;              ///< seconds: the latest frame
  std::optional<double> until_;    ///< seconds: the last frame of the clip; none: no clip
  std::atomic<bool> full_{false};  ///< the other film is the writer's
};

nlohmann::ordered_json event_json(const NoveltyEvent& event) {
  using Seconds = std::chrono::duration<double>;
  nlohmann::ordered_json json = {{"kind", "unexpected"},
                                 {"event", event.event},
                                 {"frame", event.frame},
                                 {"time", Seconds(event.time.time_since_epoch()).count()},
                                 {"reason", name_of(event.reason)},
                                 {"deviation", event.deviation}};
  if (event.has_box()) {
    json["box"] = {event.left, event.top, event.width, event.height};
    json["size"] = {event.across, event.down};
    json["zone"] = event.zone;
  }
  return json;
}

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
  if (!options_.snapshots.empty() && options_.clip_seconds > 0)
    clips_ = std::make_unique<ClipRecorder>(options_);
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

void Alerts::film(const float* frame, const float* prediction, double seconds) {
  if (clips_) clips_->see(frame, prediction, seconds);
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
  const auto clip = pictures.frame && clips_ ? clips_->keep() : ClipRecorder::Clip::none;
  slot.films = clip != ClipRecorder::Clip::none;
  slot.begins = clip == ClipRecorder::Clip::begun;
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
      if (!attempt([&] { clips_->write(clip_path_); })) lose_clip();
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
  if (slot.begins) {
    clip_path_ = path_of(options_.snapshots, slot.alert, ".mp4");
    filmed_told_ = 0;
  }
  if (slot.films) slot.alert.clip = clip_path_;
  const std::string json = alert_json(slot.alert, options_.source);
  if (std::filesystem::path beside = slot.alert.snapshot; !beside.empty()) {
    beside.replace_extension(".json");
    all = attempt([&] { io::write_whole(beside, json + "\n"); }) && all;
  }
  const auto limit = patience();
  if (!options_.webhook.empty())
    all = attempt([&] { post_json(options_.webhook, json, limit); }) && all;
  if (!options_.mqtt.empty())
    all = attempt([&] { publish(options_.mqtt, options_.topic, json, limit); }) && all;
  filmed_told_ += slot.films && all;
  (all ? told_ : failed_).fetch_add(1, std::memory_order_relaxed);
}

void Alerts::lose_clip() {
  std::error_code ignored;
  std::filesystem::remove(clip_path_ + ".part", ignored);
  told_.fetch_sub(filmed_told_, std::memory_order_relaxed);
  failed_.fetch_add(filmed_told_, std::memory_order_relaxed);
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

void Alerts::keep(const std::string& path) {
  written_.push_back(path);
  std::error_code ignored;
  for (; written_.size() > options_.keep; written_.pop_front()) {
    std::filesystem::path of_event = written_.front();
    for (const char* ending : {".png", ".json", ".mp4"})
      std::filesystem::remove(of_event.replace_extension(ending), ignored);
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
