#include "tools/page/event_store.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <utility>

#include "engine/format.h"
#include "io/files/whole_file.h"
#include "io/plot/plot.h"

namespace millrace::page {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostPicture = 32 << 20, kMostText = 256 << 10;  // bytes
constexpr char kMarks[] = "seen.json";
constexpr std::time_t kCoarse = 2;  // seconds: closer changes of a folder may share a time stamp

/// Refuses names that would lead out of the folder, too.
bool is_snapshot(const std::string& name) {
  static const std::regex pattern(R"(\d{8}T\d{6}Z-event-\d{1,18}-frame-\d{1,18}\.png)");
  return std::regex_match(name, pattern);
}

/// "" if it is longer than `most` or not a regular file.
std::string contents(const fs::path& path, std::size_t most) {
  std::error_code failed;
  if (!fs::is_regular_file(fs::symlink_status(path, failed)) || fs::file_size(path, failed) > most)
    return "";
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Json object_in(const fs::path& path) {
  Json json = Json::parse(contents(path, kMostText), nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json : Json::object();
}

/// Adds the figures in a snapshot's name.
void describe(Json& event, const std::string& name) {
  std::tm at{};
  long long number = 0, frame = 0;
  std::sscanf(name.c_str(), "%4d%2d%2dT%2d%2d%2dZ-event-%lld-frame-%lld", &at.tm_year, &at.tm_mon,
              &at.tm_mday, &at.tm_hour, &at.tm_min, &at.tm_sec, &number, &frame);
  at.tm_year -= 1900;
  at.tm_mon -= 1;
  event["event"] = number;
  event["frame"] = frame;
  if (!event["time"].is_number()) event["time"] = double(timegm(&at));
}

/// Position of the frame in a snapshot, by the size in the PNG's header.
Json crop_of(const fs::path& path) {
  unsigned char head[24] = {};
  std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(head), sizeof head);
  const auto number = [&](int at) {
    return head[at] << 24 | head[at + 1] << 16 | head[at + 2] << 8 | head[at + 3];
  };
  const auto [x, y, width, height] = io::first_of_three(number(16), number(20));
  return width > 0 && height > 0 ? Json{x, y, width, height} : Json();
}

}  // namespace

void EventStore::add(Json event, std::string png) {
  const std::string name = engine::format("event-%09lld.png", event["event"].get<long long>());
  entries_.insert_or_assign(name, Entry{.event = std::move(event), .png = std::move(png)});
  if (entries_.size() > kInMemory) entries_.erase(entries_.begin());
  ++revision_;
}

EventStore::Entry EventStore::read(const std::string& name) const {
  const fs::path path = fs::path(folder_) / name;
  Entry entry{.event = object_in(fs::path(path).replace_extension(".json")),
              .crop = crop_of(path),
              .this_run = scanned_ > 0};
  entry.described = !entry.event.empty();
  describe(entry.event, name);
  return entry;
}

void EventStore::refresh() {
  if (in_memory()) return;
  struct stat folder {};
  if (stat(folder_.c_str(), &folder) != 0) folder.st_mtim = {};
  if (folder.st_mtim.tv_sec == changed_.tv_sec && folder.st_mtim.tv_nsec == changed_.tv_nsec &&
      scanned_ > changed_.tv_sec + kCoarse)
    return;
  const Json marks = object_in(fs::path(folder_) / kMarks);
  Entries found;
  std::error_code failed;
  for (fs::directory_iterator at(folder_, failed), end; !failed && at != end;
       at.increment(failed)) {
    const std::string name = at->path().filename().string();
    std::error_code unknown;
    if (!is_snapshot(name) || !fs::is_regular_file(at->symlink_status(unknown))) continue;
    const auto known = entries_.find(name);
    const bool is_new = known == entries_.end();
    Entry entry = is_new || !known->second.described ? read(name) : known->second;
    if (!is_new) entry.this_run = known->second.this_run;
    const Json mark = marks.value(name, Json());
    entry.mark = mark == "seen" || mark == "normal" ? mark.get<std::string>() : "";
    found.emplace(name, std::move(entry));
  }
  if (found != entries_) ++revision_;
  entries_ = std::move(found);
  changed_ = folder.st_mtim;
  scanned_ = std::time(nullptr);
}

Json EventStore::summary() const {
  const auto unseen =
      std::ranges::count_if(entries_, [](const auto& one) { return one.second.mark.empty(); });
  return {{"count", entries_.size()}, {"unseen", unseen}, {"revision", revision_}};
}

Json EventStore::list() const {
  Json all = Json::array();
  for (auto at = entries_.rbegin(); at != entries_.rend() && all.size() < kListed; ++at) {
    const auto& [name, entry] = *at;
    Json event = entry.event;
    event.update({{"name", name},
                  {"picture", "/events/" + name},
                  {"crop", entry.crop},
                  {"this_run", entry.this_run},
                  {"mark", entry.mark.empty() ? Json() : Json(entry.mark)}});
    all.push_back(std::move(event));
  }
  return all;
}

std::vector<std::array<int, 4>> EventStore::normal_places(const std::string& source, int across,
                                                          int down) const {
  std::vector<std::array<int, 4>> places;
  for (const auto& [name, entry] : entries_) {
    if (entry.mark != "normal" || entry.event.value("size", Json()) != Json{across, down} ||
        entry.event.value("source", Json()) != source)
      continue;
    const Json box = entry.event.value("box", Json());
    const auto is_number = [](const Json& one) { return one.is_number_integer(); };
    if (box.is_array() && box.size() == 4 && std::ranges::all_of(box, is_number))
      places.push_back(box.get<std::array<int, 4>>());
  }
  return places;
}

std::string EventStore::picture(std::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return "";
  return in_memory() ? found->second.png : contents(fs::path(folder_) / name, kMostPicture);
}

std::int64_t EventStore::number_in_this_run(std::string_view name) const {
  const auto found = entries_.find(name);
  return found != entries_.end() && found->second.this_run
             ? found->second.event["event"].get<std::int64_t>()
             : -1;
}

bool EventStore::mark(std::string_view name, const std::string& as) {
  if (!name.empty() && !entries_.contains(name)) return false;
  const auto marked = [&](const auto& one) {
    const bool now = name.empty() ? one.second.mark.empty() : one.first == name;
    return now ? as : one.second.mark;
  };
  Json marks = Json::object();
  for (const auto& one : entries_)
    if (const std::string mark = marked(one); !mark.empty()) marks[one.first] = mark;
  if (!in_memory()) io::write_whole(fs::path(folder_) / kMarks, marks.dump() + "\n");
  for (auto& one : entries_) one.second.mark = marked(one);
  ++revision_;
  return true;
}

}  // namespace millrace::page
